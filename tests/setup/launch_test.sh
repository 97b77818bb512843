#!/usr/bin/env bash
# launch.sh: the command line that it makes, without running it.
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

shim id <<<'echo 1000'
shim nproc <<<'echo 1'
shim mpirun.openmpi <<<'exit 1'
shim nvidia-smi <<<'exit 1'
PATH=$shims:$PATH
launch() { run "$repo/common/setup/launch.sh" 99_fake "$@"; }
files="--workload configs/tiny.json --strategy lessons/99_fake/config.json"
mpirun="EVENT_NOEPOLL=1 mpirun.openmpi -q -n 2 --oversubscribe --bind-to none -x STAGECRAFT_TERMINAL"
cd "$repo"

launch --dry-run
check "one rank needs no mpirun" equal "$code $out$err" \
  "0 STAGECRAFT_TERMINAL=0 build/cpu/bin/99_fake $files"
launch --default-ranks 2 --dry-run
check "two ranks" equal "$out" "STAGECRAFT_TERMINAL=0 $mpirun build/cpu/bin/99_fake $files"
for form in "-n 2" "-n2"; do
  # shellcheck disable=SC2086  # two words
  launch --default-ranks 7 --dry-run $form --steps 5 --set bucket=tensor
  check "$form, and flags of the program" equal "$out" \
    "STAGECRAFT_TERMINAL=0 $mpirun build/cpu/bin/99_fake $files --steps 5 --set bucket=tensor"
done
launch --dry-run --workload=w.json --strategy 's t.json'
check "given files replace the default ones, words stay words" equal "$out" \
  "STAGECRAFT_TERMINAL=0 build/cpu/bin/99_fake --workload=w.json --strategy s\\ t.json"
launch --dry-run -- -n 3 --dry-run
check "what follows -- is the program's" equal "$out" \
  "STAGECRAFT_TERMINAL=0 build/cpu/bin/99_fake $files -n 3 --dry-run"
launch --default-ranks 2 --dry-run --plan
check "a plan runs alone, for the ranks that a run would have" equal "$out" \
  "STAGECRAFT_TERMINAL=0 build/cpu/bin/99_fake $files --plan --world 2"
launch -n 4 --dry-run --plan --world 64
check "a plan's own world" contains "$out" "$files --plan --world 64"
for flag in --help --version "--explain=batch.micro"; do
  launch -n 4 --dry-run "$flag"
  check "$flag runs alone" equal "$out" "STAGECRAFT_TERMINAL=0 build/cpu/bin/99_fake $files $flag"
done
OMP_NUM_THREADS=3 launch --dry-run
check "a given number of threads stays" equal "$out" "STAGECRAFT_TERMINAL=0 build/cpu/bin/99_fake $files"
OMP_NUM_THREADS=3 launch -n 2 --dry-run
check "and goes to every rank" contains "$out" " -x OMP_NUM_THREADS "
NCCL_SOCKET_IFNAME=eth0 launch -n 2 --dry-run
check "and so do NCCL's variables" contains "$out" " -x NCCL_SOCKET_IFNAME "
SLURM_JOB_NUM_NODES=2 launch -n 2 --dry-run
check "on two nodes of Slurm mpirun says its own words" contains "$out" " mpirun.openmpi -n 2 "
echo "localhost slots=2" >hosts
OMPI_MCA_orte_default_hostfile=hosts launch -n 2 --dry-run
check "and on those of a hostfile" contains "$out" " mpirun.openmpi -n 2 "
OMPI_MCA_orte_default_hostfile=none launch -n 2 --dry-run
check "not on those of one that is not there" contains "$out" " $mpirun "
SLURM_JOB_NUM_NODES=1 launch -n 2 --dry-run
check "on one node it does not" contains "$out" " $mpirun "
shim id <<<'echo 0'
launch -n 2 --dry-run
check "root is allowed" contains "$out" \
  "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 $(cut -d' ' -f2- <<<"$mpirun")"
launch --no-build --preset cuda
check "no GPU, no run of the cuda preset" equal "$code $err" \
  "69 error: --preset cuda: no GPU is visible on this machine
  fix: --preset cpu, or --build-only to compile the GPU code"
shim nvidia-smi <<'E'
if [[ $1 == -L ]]; then echo "GPU 0: a GPU (UUID: 1)"; fi
if [[ $1 == --query-gpu=compute_cap,name ]]; then echo "$CAPABILITY"; fi
E
export CAPABILITY=$'6.1, Quadro P400\n7.5, Tesla T4'
launch --no-build --preset cuda
check "a GPU that is too old" equal "$code $err" \
  "69 error: --preset cuda: Tesla T4, compute capability 7.5: the kernels need 8.0 or newer
  fix: --preset cpu, or a newer GPU"
printf '#!/bin/sh\n' >"$repo/build/cpu/bin/99_fake"
chmod +x "$repo/build/cpu/bin/99_fake"
launch --no-build
check "the run is the CPU's, and says why" contains "$code $out" \
  "0 Tesla T4, compute capability 7.5: the kernels need 8.0 or newer. This run uses the CPU"
rm "$repo/build/cpu/bin/99_fake"
for CAPABILITY in $'7.5, Tesla T4\n8.6, RTX 3090' "10.0, B200" "[N/A], what" \
  "Field \"compute_cap\" is not a valid field to query." ""; do
  launch --no-build --preset cuda
  check "not too old, or nothing says so: '$CAPABILITY'" contains "$code $err" \
    "69 error: build/cuda/bin/99_fake: is not built"
done
unset CAPABILITY
shim nvidia-smi <<<'exit 1'
launch --dry-run --preset cuda
check "the preset picks the build" contains "$out" " build/cuda/bin/99_fake "
STAGECRAFT_PRESET=cuda launch --dry-run
check "the preset from the environment" contains "$out" " build/cuda/bin/99_fake "
cd "$sandbox"
launch --dry-run
check "from elsewhere, absolute paths" contains "$out" \
  "$repo/build/cpu/bin/99_fake --workload $repo/configs/tiny.json"

for bad in 0 x -2 1.5 ''; do
  launch -n "$bad"
  check "-n '$bad'" equal "$code $out$err" "64 error: -n: '$bad' is not a number of ranks (1 to 9999)
  fix: lessons/99_fake/run.sh -n 2"
done
launch -n
check "-n without a number" equal "$code $err" "64 error: -n: its value is missing
  fix: lessons/99_fake/run.sh --help"
launch --preset gpu
check "--preset gpu" equal "$code $err" "64 error: --preset: 'gpu' is neither cpu nor cuda
  fix: lessons/99_fake/run.sh --preset cpu"
run "$repo/common/setup/launch.sh" 98_none
check "no such lesson" equal "$code $err" "64 error: launch.sh: '98_none' is no folder in lessons/
  fix: lessons/01_data_parallel/run.sh"
launch --no-build
check "not built" equal "$code $err" "69 error: build/cpu/bin/99_fake: is not built
  fix: lessons/99_fake/run.sh --build-only"

# --help must build nothing, so it still works when setup.sh is gone.
rm "$repo/common/setup/setup.sh"
for flag in --help -h; do
  launch "$flag"
  check "$flag before the first build: run.sh's own flags" contains "$code $out$err" "0 Starts a lesson: "
  check "$flag before the first build: all of them" contains "$out" "  -n RANKS "
  check "$flag before the first build: how to get the program's" contains "$out" \
    "lessons/99_fake/run.sh --build-only, then --help"
done
printf '#!/bin/sh\necho "flags of 99_fake: $*"\n' >"$repo/build/cpu/bin/99_fake"
chmod +x "$repo/build/cpu/bin/99_fake"
for task in 0 1; do
  SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$task launch --no-build -n 2
  said="error: launcher: srun started run.sh 2 times, and each would start a run of its own
  fix: run.sh without srun, in the batch script: mpirun finds the job's nodes; \
or srun --mpi=pmix build/cpu/bin/99_fake ..."
  check "srun in front of run.sh, task $task" equal "$code $out$err" "69 $( ((task)) || printf '%s' "$said")"
done
# shellcheck disable=SC2016  # the program's own variable
printf '#!/bin/sh\necho "task ${SLURM_PROCID-none}"\n' >"$repo/build/cpu/bin/99_fake"
ENVIRONMENT=BATCH SLURM_PROCID=0 SLURM_NTASKS=2 launch --no-build --plan
check "a batch script is no task" equal "$code $out" "0 task none"
ENVIRONMENT=BATCH SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 launch --no-build --plan
check "what its srun starts is one" equal "$code $out" "0 task 0"
printf '#!/bin/sh\necho "flags of 99_fake: $*"\n' >"$repo/build/cpu/bin/99_fake"
launch --help
check "help of a program that is built" contains "$code $out" "0 flags of 99_fake: "
check "help of a program that is built: its argument" contains "$out" " --help"
launch --no-build
check "how ranks are started goes unsaid" contains "$code $out" "0 flags of 99_fake: "
launch --no-build --verbose
check "but with --verbose" contains "$code $out" "0 1 rank on "

# Every real lesson's run.sh is called with --dry-run.
cd "$here/../.."
for lesson in lessons/[0-9]*; do
  run "$lesson/run.sh" --dry-run
  # The workload expected is the lesson's default, which main.cpp names.
  workload=$(sed -n 's/.*\.workload = "\(.*\)",$/\1/p' "$lesson/main.cpp")
  check "$lesson/run.sh --dry-run" contains "$code $out" \
    "bin/$(basename "$lesson") --workload ${workload:-configs/tiny.json} --strategy"
done
finish_test

#!/usr/bin/env bash
# shellcheck disable=SC2016  # payloads are not expanded here, or anywhere else
# Tests input from outside into the scripts: variables, files of the system, another user's checkout.
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
checkout=$(CDPATH='' cd "$here/../.." && pwd -P)
cd "$sandbox" # a payload that is taken as the name of a folder is made there

# --- numbers ------------------------------------------------------------------------------------------------
# Bash runs $(...) inside an index in arithmetic. Each variable that a script reads, and each flag, gets such
# a text, which must not run.
payload='root[$(touch '$sandbox'/executed)]'
shim mpirun.openmpi <<<'exit 0'
shim nproc <<<'echo "$FAKE_NPROC"'
printf '#!/bin/sh\nexit 0\n' >"$repo/build/cpu/bin/99_fake"
chmod +x "$repo/build/cpu/bin/99_fake"
names=$(cd "$checkout" && grep -ohE '(\$\{?!?|whole )[A-Z][A-Z0-9_]+' \
  common/setup/*.sh lessons/*.sh lessons/*/run.sh pipedream/run.sh tests/*.sh |
  sed 's/^whole //' | tr -d '${!' | sort -u |
  grep -vE '^(BASH.*|PATH|PWD|HOME|SECONDS|RANDOM|EUID|UID|IFS|PPID)$')
check "variables are found" contains "$names" "SLURM_JOB_NUM_NODES"
was=$PATH
for name in $names SLURM_JOB_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_PROCID FAKE_NPROC ranks cores i status \
  asked nodes tasks least quota; do
  PATH=$shims:$was run env FAKE_NPROC=2 STAGECRAFT_PRESET=cpu "$name=$payload" \
    "$repo/common/setup/launch.sh" 99_fake --no-build -n 2
  if [[ -e $sandbox/executed ]]; then
    check "$name is not run" false
    rm "$sandbox/executed"
  fi
done
all=()
for name in $names; do all+=("$name=$payload"); done
# doctor.sh reports a bad variable and goes on with its next check.
PATH=$shims:$was run env "${all[@]}" FAKE_NPROC="$payload" "$repo/common/setup/doctor.sh"
check "doctor.sh runs none" test ! -e "$sandbox/executed"
for flag in -n --default-ranks --max-restarts --min-ranks --save-every --world --resume --steps \
  --checkpoints --out; do
  PATH=$shims:$was STAGECRAFT_PRESET=cpu FAKE_NPROC=2 run "$repo/common/setup/launch.sh" 99_fake --no-build \
    "$flag" "$payload"
  check "$flag is not run" test ! -e "$sandbox/executed"
  PATH=$shims:$was STAGECRAFT_PRESET=cpu FAKE_NPROC=2 run "$repo/common/setup/launch.sh" 99_fake --no-build \
    --save-every 1 --max-restarts 1 "$flag=$payload"
  check "$flag= is not run" test ! -e "$sandbox/executed"
done
for name in SLURM_JOB_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_PROCID; do
  PATH=$shims:$was STAGECRAFT_PRESET=cpu FAKE_NPROC=2 run env "$name=two" "$repo/common/setup/launch.sh" \
    99_fake --no-build
  check "$name must be a number" equal "$code $err" "64 error: $name: 'two' is not a whole number
  fix: unset $name"
done
PATH=$shims:$was STAGECRAFT_PRESET=cpu FAKE_NPROC=2 SLURM_JOB_NUM_NODES=08 \
  run "$repo/common/setup/launch.sh" 99_fake --no-build
check "08 is a number" equal "$code" 0

# --- flags and an MPI with which a run would be wrong -------------------------------------------------------
for name in CXXFLAGS=-Ofast "CXX=g++ -ffinite-math-only"; do
  run env "$name" cmake -G Ninja -S "$checkout" -B "$sandbox/configured"
  check "$name" contains "$code $(tr -s ' \n' ' ' <<<"$err")" \
    "-${name#*-}: with it isfinite is always true, and a NaN would train on fix: without it in CXXFLAGS,"
  rm -r "$sandbox/configured"
done
shim static <<<'exec g++ -static-libstdc++ "$@"' # as a compiler does that has libstdc++.a alone
run env "CXX=$shims/static" cmake -G Ninja -S "$checkout" -B "$sandbox/configured"
check "a static libstdc++" contains "$code $(tr -s ' \n' ' ' <<<"$err")" \
  "$shims/static: links libstdc++ statically, and LibTorch brings a shared one fix: unset CC CXX CUDAHOSTCXX"
rm -r "$sandbox/configured"
mkdir -p "$sandbox/mpi" "$sandbox/conda/bin" "$sandbox/conda/lib/cmake/spdlog"
echo 'message(FATAL_ERROR "the library of another compiler")' \
  >"$sandbox/conda/lib/cmake/spdlog/spdlogConfig.cmake"
cat >"$sandbox/mpi/mpi.h" <<'E'
#define MPI_VERSION 4
#define MPI_SUBVERSION 0
typedef int MPI_Comm;
#define MPI_COMM_WORLD 0
int MPI_Init(int*, char***);
int MPI_Finalize(void);
E
printf 'int MPI_Init(int* a, char*** b) { return 0; }\nint MPI_Finalize(void) { return 0; }\n' |
  gcc -shared -fPIC -x c -o "$sandbox/mpi/libmpich.so" -
cat >"$sandbox/mpi/mpicc" <<E
#!/bin/sh
case "\$*" in
  *-show*|*-link_info*|*-compile_info*) echo "gcc -I$sandbox/mpi -L$sandbox/mpi -lmpich";;
  *) exec gcc "\$@";;
esac
E
chmod +x "$sandbox/mpi/mpicc"
PATH=$sandbox/conda/bin:$PATH \
  run cmake -G Ninja -S "$checkout" -B "$sandbox/configured" "-DMPI_C_COMPILER=$sandbox/mpi/mpicc"
check "another MPI, behind libraries that are found by no PATH" contains \
  "$code $(tr -s ' \n' ' ' <<<"$err")" "1 CMake Error at CMakeLists.txt"
check "another MPI is named" contains "$(tr -s ' \n' ' ' <<<"$err")" \
  "$sandbox/mpi/mpicc: is not Open MPI's, which Stagecraft is built with fix: apt-get install libopenmpi-dev"

# --- a start that does not come -----------------------------------------------------------------------------
# This mpirun starts nothing, prints nothing and does not end. Its own child ends with it, but not its srun,
# which has a process group of its own.
shim mpirun.openmpi <<<'setsid sleep 1234.567 & sleep 1234.56 & trap "kill $!; exit 143" TERM; wait'
began=$SECONDS
PATH=$shims:$was STAGECRAFT_PRESET=cpu FAKE_NPROC=2 STAGECRAFT_START_SECONDS=1 \
  run "$repo/common/setup/launch.sh" 99_fake --no-build -n 2
check "it is ended" equal "$code $(head -n 2 <<<"$err")" \
  "69 error: mpirun: its 2 ranks have not met in 1 s (it was ended then)
  fix: common/setup/doctor.sh tries mpirun alone"
check "soon" test $((SECONDS - began)) -lt 30
for ((i = 0; i < 20; i++)); do if pgrep -f 'sleep 1234\.56' >/dev/null; then sleep 0.1; fi; done
# After a failed start launch.sh calls mpirun a second time; the children of both calls must be gone.
check "nothing is left" equal "$(pgrep -f 'sleep 1234\.56' || true)" ""
shim mpirun.openmpi <<<'exit 0'
for limit in "-n 16" "-f 0"; do
  # shellcheck disable=SC2086  # words
  PATH=$shims:$was STAGECRAFT_PRESET=cpu FAKE_NPROC=2 run bash -c \
    '(ulimit '"$limit"' && exec "$0" 99_fake --no-build -n 1) 2>&1 | head -n 1' "$repo/common/setup/launch.sh"
  check "ulimit $limit" contains "$out" "error: ulimit $limit: a run "
done

# --- control groups -----------------------------------------------------------------------------------------
# in_machine COMMAND...: calls a function of lib.sh with the files of the fake `machine`.
machine=$sandbox/machine
# shellcheck source=common/setup/lib.sh
in_machine() { (source "$repo/common/setup/lib.sh" && "$@" "$machine"); }
put() { mkdir -p "$(dirname "$machine$1")" && printf '%s\n' "$2" >"$machine$1"; }
check "no files, no limit" equal "$(in_machine core_quota)$(in_machine memory_limit)" ""
put /proc/self/cgroup "0::/job/step"
put /sys/fs/cgroup/job/step/cpu.max "max 100000"
put /sys/fs/cgroup/job/step/memory.max "max"
check "max is none" equal "$(in_machine core_quota)$(in_machine memory_limit)" ""
put /sys/fs/cgroup/job/cpu.max "150000 100000"
put /sys/fs/cgroup/job/memory.max 7000
check "of the group above" equal "$(in_machine core_quota) $(in_machine memory_limit)" "2 7000"
put /sys/fs/cgroup/job/step/cpu.max "100000 100000"
put /sys/fs/cgroup/job/step/memory.max 8000
put /sys/fs/cgroup/job/step/memory.events $'oom 5\noom_kill 2\noom_group_kill 1'
check "the least" equal "$(in_machine core_quota) $(in_machine memory_limit)" "1 7000"
check "ended for want of memory" equal "$(in_machine memory_kills)" 2
rm -r "$machine"
put /proc/self/cgroup $'5:cpu,cpuacct:/docker/1/job\n4:memory:/job\n0::/'
put /proc/self/mountinfo \
  '32 31 0:29 /docker/1 /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct'
put /sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us 300000
put /sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us 100000
put /sys/fs/cgroup/memory/job/memory.limit_in_bytes 52428800
put /sys/fs/cgroup/memory/job/memory.oom_control $'oom_kill_disable 0\nunder_oom 0\noom_kill 7'
check "of version 1, in a container" equal \
  "$(in_machine core_quota) $(in_machine memory_limit) $(in_machine memory_kills)" "3 52428800 7"
put /sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us "$payload"
put /sys/fs/cgroup/memory/job/memory.limit_in_bytes "$payload"
check "what is no number is no limit" equal "$(in_machine core_quota)$(in_machine memory_limit)" ""
check "and is not run" test ! -e "$sandbox/executed"

# --- CDPATH -------------------------------------------------------------------------------------------------
# With CDPATH, `cd lessons` would go to another folder of that name and print its path.
decoy=$sandbox/decoy
mkdir -p "$decoy"/{lessons/09_checkpoint_and_faults,common/setup,pipedream,tests} \
  "$repo"/{pipedream,tests,lessons/09_checkpoint_and_faults}
cp "$checkout"/lessons/*.sh "$repo/lessons"
cp "$checkout"/lessons/09_checkpoint_and_faults/run.sh "$repo/lessons/09_checkpoint_and_faults"
cp "$checkout"/pipedream/run.sh "$repo/pipedream"
cp "$checkout"/tests/*.sh "$repo/tests"
mkdir -p "$repo/build/pipedream_command"
printf '#!/bin/sh\necho "pipedream: $*"\n' >"$repo/build/pipedream_command/pipedream"
chmod +x "$repo/build/pipedream_command/pipedream"
export CDPATH=$decoy:.:$repo
cd "$repo"
for script in "lessons/choose.sh --gpus 0 --no-build" "lessons/all.sh 99" "lessons/report.sh no-run" \
  "lessons/hunt.sh --help" "lessons/curves.sh" "lessons/09_checkpoint_and_faults/run.sh --dry-run" \
  "pipedream/run.sh --help" \
  "tests/run.sh --nonsense" "tests/exercises.sh nonsense" "tests/soak.sh --nonsense" \
  "common/setup/setup.sh --nonsense" "common/setup/launch.sh none" "common/setup/tidy.sh $sandbox"; do
  # shellcheck disable=SC2086  # words
  run env -u CDPATH $script
  without=$code$out$err
  # shellcheck disable=SC2086
  run $script
  check "$script" equal "$code$out$err" "$without"
done
unset CDPATH
mkdir -p "$repo/build/cpu/bin" "$repo/common/input"
printf '#!/bin/sh\necho "of the build: $*"\n' >"$repo/build/cpu/bin/pipedream"
chmod +x "$repo/build/cpu/bin/pipedream"
run pipedream/run.sh --help
check "pipedream that CMake has built" equal "$code $out$err" "0 of the build: --help"
touch -d "1 day ago" "$repo/build/cpu/bin/pipedream"
touch -d "1 hour ago" "$repo/pipedream/new.cpp"
run pipedream/run.sh --help
check "unless its sources are newer" equal "$code $out$err" "0 pipedream: --help"
# A script that changes to a named folder must clear CDPATH first, itself or by sourcing lib.sh.
cd "$checkout"
plain=$(git grep -nE '(^|\$?\()cd ("\$\(|")' -- '*.sh' |
  grep -vE 'cd "\$(root|sandbox|repo|deps|build|checkout|here/)' |
  grep -v "CDPATH=''" | grep -v '^common/setup/lib.sh:' || true)
check "every cd" equal "$plain" ""

# --- somebody else's checkout -------------------------------------------------------------------------------
if [[ $(id -u) == 0 ]]; then
  chmod 755 "$sandbox"
  mkdir -p "$repo/.deps" "$repo/lessons/99_fake"
  printf '#!/bin/sh\nexit 0\n' >"$repo/common/setup/setup.sh"
  touch "$repo/build/cpu/build.ninja"
  shim ninja <<'E'
[[ " $* " == *" -n "* ]] || { echo "built" >>"$0.log"; exit 1; }
echo "ninja: ${NINJA:-no work to do.}"
E
  mine() {
    PATH=$shims:$was STAGECRAFT_PRESET=cpu FAKE_NPROC=2 run setpriv --reuid 12345 --regid 12345 \
      --clear-groups env "$@" "$repo/common/setup/launch.sh" 99_fake
  }
  before=$(find "$repo" | sort)
  mine
  check "built by another user: it runs" equal "$code $out$err" "0 "
  mine NINJA="[1/2] gpt.cpp.o"
  check "not as new as its sources: it says so" equal "$code $out$err" \
    "0 $repo is not yours to write: what was built there last is taken as it is"
  check "nothing was written" equal "$(find "$repo" | sort)" "$before"
  mkdir -p "$repo/docs/pages" && touch "$repo/docs/pages/99_fake.html"
  mine
  check "built before: no page to look at meanwhile" equal "$code $out$err" "0 "
  rm "$repo"/build/cpu/bin/*
  mine
  check "a first build names the lesson's page" contains "$out" "docs/pages/99_fake.html"
  rm -r "$repo/docs"
  mine
  check "if there is one" equal "$out" ""
  rm -r "$repo/build/cpu" && chmod 755 "$repo"
  mine
  check "not built at all: what to do" equal "$code $err" \
    "69 error: $repo/.deps: it cannot be written, so nothing can be installed or built in $repo
  fix: as the user who owns it, or in a clone of your own"
fi
finish_test

#!/usr/bin/env bash
# Starts a lesson: sets up and builds on first use, then runs its program on real ranks. Every
# lessons/*/run.sh calls this.
#   usage  launch.sh LESSON [--default-ranks N] [--default-workload FILE] [-n RANKS] [--preset cpu|cuda]
#          [--dry-run] [--build-only] [--no-build] [the program's own flags...] [-- flags that must not be
#          read here...]
#     -n RANKS      processes, one a rank
#     --preset      cpu or cuda; default: cuda where a GPU is visible and LibTorch with CUDA is installed (or
#                   STAGECRAFT_PRESET)
#     --dry-run     prints the command line that would run; installs, builds and runs nothing
#     --build-only  stops before the run
#     --no-build    runs what was built before
#     --max-restarts K  after a run that lost a rank (75, or a rank that a signal killed): starts again, at
#                       most K times, from the newest checkpoint, if there is one. Needs --save-every.
#                       --inject and --crash-at are left out then, and --out DIR becomes DIR-restart-1, or the
#                       next number that is free. Ends where a restart saves no later step than the one that
#                       it began at
#     --min-ranks R  a restart takes the next smaller number of ranks, R at least, that a run accepts (--plan
#                    --strict)
#     --help        what the program takes, as it was built last; before the first build this text
#   exit   the program's own code; 69 where mpirun could not start the ranks; 75 where a rank was killed; 129,
#          130, 143 after SIGHUP, SIGINT, SIGTERM. docs/troubleshooting.md, "How a run ends".
# Open MPI needs help in three places, all said in one line at the start of a run with --verbose: it refuses
# root, it refuses more ranks than cores, and it ties a rank to one core. In Slurm: call run.sh from the
# sbatch script, where mpirun finds the allocation. docs/cluster.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/restart.sh"
source "$(dirname "${BASH_SOURCE[0]}")/ending.sh"

require_limits

# --- command line -------------------------------------------------------------------------------------------

# launch.sh alone sets these variables, which are its messages to the ranks; inherited values would mislead
# them.
unset STAGECRAFT_ONLY_MEET STAGECRAFT_HOLDER STAGECRAFT_SIGNS STAGECRAFT_SIGNAL_FILE
lesson=${1:-}
[[ -n $lesson && -d $root/lessons/$lesson ]] ||
  die "$exit_usage" "launch.sh" "'$lesson' is no folder in lessons/" "lessons/01_data_parallel/run.sh"
shift

ranks='' default_ranks=1 default_workload=configs/tiny.json preset=${STAGECRAFT_PRESET:-auto} dry_run=0 \
  build_only=0 do_build=1
# These variables say which of the program's flags were given.
alone=0 help=0 plan=0 verbose=0 has_world=0 has_workload=0 has_strategy=0 saves=0
max_restarts='' min_ranks=''
arguments=()

# count WHAT TEXT: prints TEXT if it is a number of ranks, and refuses anything else.
count() {
  [[ $2 =~ ^[1-9][0-9]{0,3}$ ]] ||
    die "$exit_usage" "$1" "'$2' is not a number of ranks (1 to 9999)" "lessons/$lesson/run.sh -n 2"
  say "$2"
}

see_program_flag() {
  case ${1%%=*} in
    --help | -h) alone=1 help=1 ;;
    --explain | --version) alone=1 ;;
    --plan) alone=1 plan=1 ;;
    --world) has_world=1 ;;
    --workload) has_workload=1 ;;
    --save-every) saves=1 ;;
    --verbose) verbose=1 ;;
    --strategy) has_strategy=1 ;;
  esac
}

while (($#)); do
  case $1 in
    --max-restarts=* | --min-ranks=*) set -- "$1" "${1%%=*}" "${1#*=}" "${@:2}" ;; # read as two words next
    -n | --default-ranks | --default-workload | --preset | --max-restarts | --min-ranks)
      (($# >= 2)) || die "$exit_usage" "$1" "its value is missing" "lessons/$lesson/run.sh --help"
      case $1 in
        -n) ranks=$(count "$1" "$2") ;;
        --default-ranks) default_ranks=$(count "$1" "$2") ;;
        --default-workload) default_workload=$2 ;;
        --max-restarts)
          [[ $2 =~ ^[0-9]{1,6}$ ]] ||
            die "$exit_usage" "$1" "'$2' is not a number of restarts" \
            "lessons/$lesson/run.sh --max-restarts 3"
          max_restarts=$((10#$2))
          ;;
        --min-ranks) min_ranks=$(count "$1" "$2") ;;
        --preset) preset=$2 ;;
      esac
      shift
      ;;
    -n[0-9]*) ranks=$(count -n "${1#-n}") ;;
    --preset=*) preset=${1#*=} ;;
    --dry-run) dry_run=1 ;;
    --build-only) build_only=1 ;;
    --no-build) do_build=0 ;;
    --)
      shift
      for argument in "$@"; do see_program_flag "$argument"; done
      arguments+=("$@")
      break
      ;;
    *)
      see_program_flag "$1"
      arguments+=("$1")
      ;;
  esac
  shift
done
ranks=${ranks:-$default_ranks}

# --- preset -------------------------------------------------------------------------------------------------

gpu_note=''
case $preset in
  cpu) ;;
  auto)
    preset=cpu
    if gpu_visible; then
      gpu_note=$(too_old_gpu)
      if [[ -n $gpu_note ]]; then
        gpu_note+=". This run uses the CPU"
      elif [[ -n $(torch_for cuda) && -n $(find_nvcc) ]]; then
        preset=cuda
      else
        gpu_note="a GPU is here, but LibTorch with CUDA or nvcc 13 is not: this run uses the CPU."
        gpu_note+=" For the GPU: common/setup/setup.sh --cuda"
      fi
    fi
    ;;
  cuda)
    ((dry_run || build_only || alone)) || gpu_visible ||
      die "$exit_missing" "--preset cuda" "no GPU is visible on this machine" \
      "--preset cpu, or --build-only to compile the GPU code"
    if ((dry_run == 0 && build_only == 0 && alone == 0)); then
      too_old=$(too_old_gpu)
      [[ -z $too_old ]] || die "$exit_missing" "--preset cuda" "$too_old" "--preset cpu, or a newer GPU"
    fi
    ;;
  *) die "$exit_usage" "--preset" "'$preset' is neither cpu nor cuda" "lessons/$lesson/run.sh --preset cpu" ;;
esac

# --- the command line that runs -----------------------------------------------------------------------------

# Paths are written relative to the repository if that is the current directory, so that they can be read and
# copied.
prefix=$root/
if [[ $(pwd -P) == "$root" ]]; then prefix=''; fi

if ((has_strategy == 0)); then
  arguments=(--strategy "${prefix}lessons/$lesson/config.json" "${arguments[@]}")
fi
if ((has_workload == 0)); then arguments=(--workload "$prefix$default_workload" "${arguments[@]}"); fi
if ((plan && has_world == 0)); then arguments+=(--world "$ranks"); fi
if ((alone)); then ranks=1; fi

cores=$(cores)
settings=()
notes=()
passed_on=()
if [[ -n ${OMP_NUM_THREADS:-} ]]; then
  [[ $OMP_NUM_THREADS =~ ^[1-9][0-9]*$ ]] ||
    die "$exit_usage" "OMP_NUM_THREADS" "'$OMP_NUM_THREADS' is not a number of threads" \
    "unset OMP_NUM_THREADS, or export OMP_NUM_THREADS=1"
  notes+=("$OMP_NUM_THREADS thread$( ((OMP_NUM_THREADS == 1)) || printf s) each, as OMP_NUM_THREADS says")
  passed_on=(-x OMP_NUM_THREADS)
fi
# Slurm counts a batch script as task 0 of the job's tasks; only a process inside a step was started by srun.
if [[ ${ENVIRONMENT:-} == BATCH && -z ${SLURM_STEP_ID:-} ]]; then unset SLURM_PROCID; fi
several_hosts=0  # as far as can be seen from here
nodes=$(whole SLURM_JOB_NUM_NODES 1)
hosts=${OMPI_MCA_orte_default_hostfile:-}
if ((nodes > 1)) || [[ -n $hosts && -z $(hostfile_trouble "$hosts") ]]; then several_hosts=1; fi
# Over ssh, mpirun passes on only the variables that it is told to.
for name in $(compgen -e NCCL_ || true); do passed_on+=(-x "$name"); done
# Under mpirun every rank writes to a pseudo-terminal, so it cannot see whether a person is watching.
if [[ -t 1 ]]; then settings+=(STAGECRAFT_TERMINAL=1); else settings+=(STAGECRAFT_TERMINAL=0); fi

# compose: sets `command` from `ranks` and `arguments`.
compose() {
  command=()
  if ((ranks > 1)); then
    command=("$(mpi_command mpirun)")
    # mpirun's own messages stay on if there are several hosts, because they name the host of an error.
    if ((several_hosts == 0)); then command+=(-q); fi
    command+=(-n "$ranks" --oversubscribe --bind-to none "${passed_on[@]}" -x STAGECRAFT_TERMINAL)
    # Without epoll, because mpirun's libevent otherwise complains about closed files when ranks end early.
    settings+=(EVENT_NOEPOLL=1)
    notes+=("any core (--bind-to none)")
    if ((ranks > cores)); then notes+=("more ranks than cores (--oversubscribe)"); fi
    if [[ $(id -u) == 0 ]]; then
      settings+=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
      notes+=("as root (OMPI_ALLOW_RUN_AS_ROOT)")
    fi
  fi
  command+=("${prefix}build/$preset/bin/$lesson" "${arguments[@]}")
}
compose

if ((dry_run)); then
  printf '%s ' "${settings[@]}"
  printf '%q ' "${command[@]:0:${#command[@]}-1}"
  printf '%q\n' "${command[-1]}"
  exit 0
fi

# --- help: nobody waits minutes for it ----------------------------------------------------------------------

if ((help && build_only == 0)); then
  do_build=0
  if [[ ! -x $root/build/$preset/bin/$lesson ]]; then
    print_header "${BASH_SOURCE[0]}"
    say "$lesson is not built yet. Its own flags, in some minutes: lessons/$lesson/run.sh --build-only," \
      "then --help again"
    exit 0
  fi
fi

# --- first use ----------------------------------------------------------------------------------------------

if [[ -n $gpu_note ]] && ((alone == 0)); then say "$gpu_note"; fi
if ((do_build)); then
  setup_flags=(--quiet)
  if [[ $preset == cuda ]]; then setup_flags+=(--cuda); fi
  "$root/common/setup/setup.sh" "${setup_flags[@]}"
  first=' (the first time takes about 5 minutes on 2 cores)'
  if compgen -G "$root/build/$preset/bin/[0-9][0-9]_*" >/dev/null; then first=''; fi
  sample=docs/pages/$lesson.html  # the page that the run will leave
  if [[ -n $first && -f $root/$sample ]]; then say "meanwhile, a run of this lesson as a page: $sample"; fi
  made "$preset" "building $lesson with $(jobs_for_build) compilers at once$first" "$lesson"
fi
[[ -x $root/build/$preset/bin/$lesson ]] ||
  die "$exit_missing" "build/$preset/bin/$lesson" "is not built" "lessons/$lesson/run.sh --build-only"
if ((build_only)); then exit 0; fi
if ((alone == 0)); then check_restarts; fi

# --- run ----------------------------------------------------------------------------------------------------

tasks=$(whole SLURM_STEP_NUM_TASKS 1)
task=$(whole SLURM_PROCID 0)
if ((alone == 0 && tasks > 1)); then
  ((task == 0)) || exit "$exit_missing"  # one task says it
  die "$exit_missing" "launcher" "srun started run.sh $tasks times, and each would start a run of its own" \
    "run.sh without srun, in the batch script: mpirun finds the job's nodes; \
or srun --mpi=pmix build/$preset/bin/$lesson ..."
fi
if ((alone == 0 && verbose)); then
  line="$ranks rank$( ((ranks == 1)) || printf s) on $cores core$( ((cores == 1)) || printf s)"
  for note in "${notes[@]}"; do line+=", $note"; done
  say "$line"
fi

# A run locks the files that it writes. Between two attempts no program runs, so this script owns the locks
# (common/storage/run_lock.h).
if [[ -n $max_restarts ]]; then settings+=("STAGECRAFT_HOLDER=$$ $(started_at $$) $(uname -n)"); fi
make_files_of_ranks
export "${settings[@]}"
refuse_what_mpirun_cannot
child='' asked=0

# The run has its own process group, so a Ctrl-C at the terminal reaches only this script, which passes it on
# once. mpirun then ends its ranks; ranks alive 10 s later (2 minutes if they may save), or at a second
# signal, are killed.
forward() {
  local signal=$1
  if ((asked)); then
    kill_all
  else
    find_family
    if [[ -n $STAGECRAFT_SIGNAL_FILE ]]; then say $(($2 - 128)) >"$STAGECRAFT_SIGNAL_FILE"; fi
    # On SIGTERM mpirun leaves its ranks one second. Ranks that save first get SIGUSR1 instead, which mpirun
    # only passes on.
    if ((saves && ranks > 1)) && [[ $signal == TERM ]]; then signal=USR1; fi
    kill -"$signal" "$child" 2>/dev/null || true
    kill_after $((saves ? 1200 : 100)) </dev/null >/dev/null 2>&1 &
  fi
  asked=$2
}

# run_once: runs `command` and sets `status`.
run_once() {
  trap 'forward INT 130' INT
  trap 'forward TERM 143' TERM
  trap 'forward HUP 129' HUP

  # While stderr is closed, bash cannot print its line about a child killed by a signal, which may come at any
  # time.
  exec {errors}>&2 2>/dev/null
  # setpriv makes mpirun, and with it the ranks, end if this script is killed.
  set -m
  setpriv --pdeathsig TERM -- "${command[@]}" </dev/null 2>&"$errors" {errors}>&- &
  child=$!
  set +m
  if ((ranks > 1)) && [[ -n $signs ]]; then watch_start "$start_limit"; fi

  status=0
  while :; do
    wait "$child" && status=0 || status=$?
    # A trapped signal interrupts the wait: the run may still be there, or its exit code still be pending.
    kill -0 "$child" || break
  done
  exec 2>&"$errors" {errors}>&-
  trap - INT TERM HUP
}

while :; do
  began=$(date +%s.%N) log_before=$(newest_log) kills_before=$(number "$(memory_kills '')" 0)
  forget_signs
  run_once
  sweep
  ((asked == 0)) || break
  prepare_restart "$status" "$began" || break
  compose
done

if ((asked)); then
  if ((status == 137)); then say "killed: the run had not ended by then; what it saved before stands" >&2; fi
  exit "$asked"
fi
case $(kind_of "$status") in
  lost) lost "$status" ;;
  unstarted) unstarted "$status" ;;
esac
exit "$status"

# shellcheck shell=bash disable=SC2034
# Shared by the scripts of this folder and of tests/; sourced, never run. Sets `root` (the repository) and
# `deps`.
# With CDPATH set, `cd` goes elsewhere and prints where.
unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
deps=$root/.deps  # what setup.sh installs in addition to the system's packages; ignored by git

# Exit codes by name, as in docs/troubleshooting.md, "How a run ends".
readonly exit_usage=64 exit_missing=69 exit_cannot_write=73 exit_lost_rank=75

say() { printf '%s\n' "$*"; }

# die CODE WHERE WHAT FIX [MORE]: prints an error in the project's only form and exits; MORE are further
# lines. It is one write, because bash itself writes line by line, and output of ranks must not come between
# the lines.
die() {
  cat >&2 <<<"error: $2: $3${4:+$'\n'  fix: $4}${5:+$'\n'$5}"
  exit "$1"
}

# Said before anything that the bash of a Mac does not know.
[[ $OSTYPE == linux* ]] ||
  die "$exit_missing" "this machine" "its system is $OSTYPE, and the lessons need Linux" \
    "a container: docs/containers.md"

# HOME is not set for a user without an entry in the system's list, and mpirun crashes without it.
if [[ ! -v HOME ]]; then
  HOME=~
  export HOME
fi

# print_header FILE: prints the comment with which a script begins, which is its --help.
print_header() { sed -n '2,/^set /s/^# \{0,1\}//p' "$1" | grep -v '^set '; }

# python_program SCRIPT PROGRAM ARGUMENT...: execs PROGRAM, a Python file of the repository; with -h or --help
# prints SCRIPT's header.
python_program() {
  local script=$1 program=$2 argument
  shift 2
  for argument in "$@"; do
    if [[ $argument == -h || $argument == --help ]]; then
      print_header "$script"
      exit 0
    fi
  done
  have python3 || die "$exit_missing" "python3" "is not installed" "apt-get install python3"
  exec python3 -B "$root/$program" "$@"
}

have() { command -v "$1" >/dev/null 2>&1; }

# is_open_mpi COMMAND: whether this mpicc or mpirun is Open MPI's.
is_open_mpi() {
  [[ $1 == *.openmpi || $({ "$1" --showme:version || "$1" --version; } 2>/dev/null) == *"Open MPI"* ]]
}

# mpi_command NAME: NAME, or Debian's name for Open MPI's if another MPI is installed too.
mpi_command() { if have "$1.openmpi"; then say "$1.openmpi"; else say "$1"; fi; }

# of_another_system COMPILER: whether it has a C library and headers of its own, as conda's, and so sees
# nothing that apt-get installs.
of_another_system() { [[ $($1 -print-sysroot 2>/dev/null) == /?* ]]; }

# compiler: the command that compiles C++: CXX, or g++ unless that one is of another system.
compiler() {
  if [[ -z ${CXX:-} ]] && of_another_system g++; then say /usr/bin/g++; else say "${CXX:-g++}"; fi
}

# have_libfuzzer: whether clang 14's libFuzzer is installed, which comes in a package of its own.
have_libfuzzer() {
  [[ -e $(clang++-14 -print-file-name="libclang_rt.fuzzer-$(uname -m).a" 2>/dev/null) ]]
}

# Bash executes commands inside an index in arithmetic: (( x )) with x='a[$(command)]'. Text from outside is
# therefore checked to be a number before any arithmetic.
#
# whole NAME DEFAULT: the value of the variable NAME, a whole number; DEFAULT if unset or empty. Refuses other
# text.
whole() {
  local text=${!1:-$2}
  [[ $text =~ ^[0-9]{1,9}$ ]] || die "$exit_usage" "$1" "'$text' is not a whole number" "unset $1"
  say $((10#$text))
}

# number TEXT OTHERWISE: TEXT if it is a whole number, otherwise OTHERWISE (for "max" or an empty file).
number() { if [[ $1 =~ ^[0-9]{1,18}$ ]]; then say $((10#$1)); else say "$2"; fi; }

# content FILE: the first line of FILE; empty if it cannot be read.
content() {
  local line=''
  if [[ -r $1 ]]; then read -r line <"$1" || true; fi
  say "$line"
}

# --- what this process may use of the machine ---------------------------------------------------------------

# control_groups CONTROLLER [TOP]: the folders of this process's control group and of all its parents, of
# version 2 and of version 1. Tests put TOP before every path. common/base/control_group.cpp does the same.
control_groups() {
  local top=${2:-} names path mount below
  while IFS=: read -r _ names path; do
    [[ -z $names || ,$names, == *,$1,* ]] || continue
    while read -r mount below; do
      while [[ -n $below ]]; do
        if [[ -d $top$mount$below ]]; then say "$top$mount$below"; fi
        below=${below%/*}
      done
      if [[ -d $top$mount ]]; then say "$top$mount"; fi
    done < <(group_mounts "${names:+$1}" "${path%/}" "$top" | awk '!seen[$0]++')
  done < <(cat "$top/proc/self/cgroup" 2>/dev/null || true)
}

# group_mounts CONTROLLER PATH TOP: where the group PATH is mounted, as "MOUNT PATH-BELOW"; CONTROLLER is
# empty for version 2. A container sees its own part of the tree, perhaps under another name than the host.
group_mounts() {
  local base mount
  {
    say / "/sys/fs/cgroup${1:+/$1}"
    awk -v controller="$1" '{
      for (i = 7; $i != "-" && i < NF; i++) {}
      v1 = $(i + 1) == "cgroup" && index("," $(i + 3) ",", "," controller ",")
      if (controller == "" ? $(i + 1) == "cgroup2" : v1) print $4, $5
    }' "$3/proc/self/mountinfo" 2>/dev/null || true
  } | while read -r base mount; do
    base=${base%/}
    if [[ $2 == "$base"/* ]]; then say "$mount ${2#"$base"}"; else say "$mount"; fi
  done
}

# core_quota TOP: the number of cores that control groups allow; empty if they set no limit.
core_quota() {
  local group quota period least='' top=$1
  while read -r group; do
    read -r quota period < <(content "$group/cpu.max")
    quota=$(number "${quota:-$(content "$group/cpu.cfs_quota_us")}" 0)
    period=$(number "${period:-$(content "$group/cpu.cfs_period_us")}" 0)
    ((quota > 0 && period > 0)) || continue
    quota=$(((quota + period - 1) / period))
    least=$((${least:-$quota} < quota ? least : quota))
  done < <(control_groups cpu "$top")
  say "$least"
}

# memory_limit TOP: the bytes that control groups allow; empty if they set no limit.
memory_limit() {
  local group limit least='' top=$1
  while read -r group; do
    limit=$(content "$group/memory.max")
    limit=$(number "${limit:-$(content "$group/memory.limit_in_bytes")}" 0)
    ((limit > 0)) || continue
    least=$((${least:-$limit} < limit ? least : limit))
  done < <(control_groups memory "$top")
  say "$least"
}

# memory_kills TOP: the number of processes that the kernel has killed because this control group was out of
# memory; empty if unknown.
memory_kills() {
  local group
  read -r group < <(control_groups memory "$1") || true
  { cat "$group/memory.events" "$group/memory.oom_control" 2>/dev/null || true; } |
    awk '$1 == "oom_kill" {print $2}'
}

# The cores that this process may use: those of its affinity mask, or fewer if a container's quota says so.
cores() {
  local count quota
  count=$(number "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)" 1)
  quota=$(core_quota '')
  say $((${quota:-$count} < count ? quota : count))
}

# The number of simultaneous compilations: one per core, with 1 GiB of memory for each, which files with
# torch's headers need.
jobs_for_build() {
  local gib at_most limit
  gib=$(($(number "$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)" 0) / 1048576))
  limit=$(memory_limit '')
  if [[ -n $limit ]] && ((limit >> 30 < gib)); then gib=$((limit >> 30)); fi
  at_most=$(cores)
  say $((gib < 1 ? 1 : gib < at_most ? gib : at_most))
}

free_mib() { number "$(df -Pm "$1" | awk 'NR == 2 {print $4}')" 0; }

# --- LibTorch and CUDA: where they are ----------------------------------------------------------------------

readonly torch_version=2.11.0

# complete PART: whether .deps/PART was installed completely, from the current requirements.
complete() {
  local stamp=$deps/$1/.complete
  [[ -f $stamp ]] && [[ $(<"$stamp") == "$(recipe_hash "$1")" ]]
}

recipe_hash() { sha256sum <"$root/common/setup/requirements-$1.txt" | cut -d' ' -f1; }

# The torch package of python3 if it has the version that Stagecraft is built with; otherwise empty.
python_torch() {
  have python3 || return 0
  python3 - "$torch_version" 2>/dev/null <<'PY' || true
import importlib.util, os, re, sys
spec = importlib.util.find_spec("torch")
home = os.path.dirname(spec.origin)
version = re.search(r"__version__ = '([^'+]*)", open(os.path.join(home, "version.py")).read()).group(1)
if version == sys.argv[1] and os.path.exists(os.path.join(home, "lib", "libtorch_cpu.so")):
    print(home)
PY
}

# torch_for PRESET: the torch package directory for cpu or cuda; empty if there is none. FindLibTorch.cmake
# looks in the same order.
torch_for() {
  local candidate
  local -a candidates=()
  [[ -z ${LIBTORCH_ROOT:-} ]] || candidates+=("$LIBTORCH_ROOT")
  if [[ $1 == cpu ]] && complete torch-cpu; then candidates+=("$deps/torch-cpu/torch"); fi
  if complete torch-cuda; then candidates+=("$deps/torch-cuda/torch"); fi
  for candidate in "${candidates[@]}" ''; do
    [[ -n $candidate ]] || candidate=$(python_torch)
    [[ -n $candidate && -f $candidate/lib/libtorch_cpu.so ]] || continue
    if [[ $1 == cuda && ! -f $candidate/lib/libtorch_cuda.so ]]; then continue; fi
    say "$candidate"
    return
  done
}

# find_nvcc: the path of CUDA 13's nvcc, which CMake takes through CUDACXX; empty if there is none.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
    /usr/local/cuda-13*/bin/nvcc \
    "$deps/cuda-toolkit/nvidia/cu13/bin/nvcc"; do
    [[ -n $candidate && -x $candidate ]] || continue
    if [[ $("$candidate" --version 2>/dev/null) == *'release 13.'* ]]; then
      say "$candidate"
      return
    fi
  done
}

gpu_visible() {
  [[ ${CUDA_VISIBLE_DEVICES-all} =~ ^(|-1)$ ]] && return 1
  have nvidia-smi && [[ $'\n'$(nvidia-smi -L 2>/dev/null) == *$'\nGPU '* ]]
}

# too_old_gpu: the newest GPU of this machine, if it is older than the kernels need
# (base/gpu_architectures.h); otherwise empty, and also if unknown.
too_old_gpu() {
  { nvidia-smi --query-gpu=compute_cap,name --format=csv,noheader 2>/dev/null || true; } | sort -rV |
    awk -F', ' 'NR == 1 && $1 ~ /^[0-9]+\.[0-9]+$/ && $1 + 0 < 8 {
      print $2 ", compute capability " $1 ": the kernels need 8.0 or newer"}'
}

# --- configure and build ------------------------------------------------------------------------------------

# configure PRESET: makes build/PRESET ready for a build. CMake's output is shown only if it fails. A build
# folder from another place (the repository was moved) or from a failed configuration is started afresh.
configure() {
  local preset=$1 build=$root/build/$1 log=$root/build/$1/configure.log
  if [[ -f $build/build.ninja ]] &&
    grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt"; then
    return 0
  fi
  mkdir -p "$build"
  if [[ $preset == cuda && -z ${CUDACXX:-} ]]; then
    CUDACXX=$(find_nvcc)
    export CUDACXX
  fi
  if [[ -z ${CXX:-} && $(compiler) != g++ ]]; then
    say "$(command -v g++) does not see this system's headers: /usr/bin/g++ compiles"
    export CC=/usr/bin/gcc CXX=/usr/bin/g++
  fi
  (cd "$root" && cmake --fresh --preset "$preset") >"$log" 2>&1 || {
    sed -n '/^CMake Error/,$p' "$log" | head -n 40 >&2
    die "$exit_missing" "cmake --preset $preset" \
      "failed; its errors are above, all is in build/$preset/configure.log" \
      "common/setup/doctor.sh names what is missing"
  }
}

# build PRESET WHAT-TO-SAY TARGET...: prints nothing if there is nothing to do; otherwise WHAT-TO-SAY and one
# line of progress, redrawn on a terminal, every 20 s elsewhere. The compilers' output is in
# build/PRESET/build.log.
build() {
  local preset=$1 label=$2 log=$root/build/$1/build.log pid jobs
  shift 2
  jobs=$(jobs_for_build)
  : >"$log"
  # CCACHE_BASEDIR makes another copy of the repository in another place find the same objects.
  CCACHE_BASEDIR=$root NINJA_STATUS='[%f/%t] ' setpriv --pdeathsig TERM -- \
    ninja -C "$root/build/$preset" -j "$jobs" "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  show_progress "$pid" "$label" "$log"
  wait "$pid" || {
    sed -n '/^FAILED\|^ninja: error/,$p' "$log" | head -n 80 >&2
    die "$exit_missing" "build/$preset" \
      "the build failed; the first lines are above, all are in build/$preset/build.log" \
      "common/setup/doctor.sh names what is missing; too little memory or disk also ends here"
  }
}

show_progress() {
  local pid=$1 label=$2 log=$3 ticks=0 line width
  width=$(number "${COLUMNS:-}" 80)
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.1
    ticks=$((ticks + 1))
    if ((ticks == 10)); then say "$label"; fi
    line=$(tail -n 1 "$log" | cut -c "1-$((width > 3 ? width - 3 : 1))")
    if [[ -t 1 ]]; then
      if ((ticks > 10 && ticks % 3 == 0)); then printf '\r\033[K  %s' "$line"; fi
    elif ((ticks % 200 == 0)); then
      say "  $line"
    fi
  done
  if [[ -t 1 ]] && ((ticks > 10)); then printf '\r\033[K'; fi
}

# may_build PRESET: whether build/PRESET and the lock can be written.
may_build() {
  local place
  for place in "$root/build/$1" "$deps"; do
    while [[ ! -e $place ]]; do place=$(dirname "$place"); done
    [[ -w $place ]] || return 1
  done
}

# up_to_date PRESET TARGET...: whether no source is newer than the built targets. Writes nothing: ninja never
# rebuilds its own file if it is given under another name than in its rules.
up_to_date() {
  local said
  said=$(ninja -C "$root/build/$1" -f "$root/build/$1/build.ninja" -n "${@:2}" 2>&1 </dev/null) || true
  [[ $said == *"ninja: no work to do."* ]]
}

# made PRESET WHAT-TO-SAY TARGET...: builds the targets, one process at a time. In another user's checkout the
# existing build is used as it is.
made() {
  local preset=$1
  if [[ -d $root/build/$preset ]] && ! may_build "$preset"; then
    up_to_date "$preset" "${@:3}" ||
      say "$root is not yours to write: what was built there last is taken as it is"
    return 0
  fi
  configure_and_build() {
    configure "$preset"
    build "$@"
  }
  locked "build-$preset" configure_and_build "$@"
}

# locked NAME COMMAND...: runs COMMAND for one process at a time in this repository (a build folder, .deps).
locked() {
  local name=$1
  shift
  { mkdir -p "$deps" && : >>"$deps/.$name.lock"; } 2>/dev/null ||
    die "$exit_missing" "$deps" "it cannot be written, so nothing can be installed or built in $root" \
      "as the user who owns it, or in a clone of your own"
  exec 9>"$deps/.$name.lock"
  flock -n 9 || if (($? == 1)); then  # any other status means a file system without locks
    say "waiting for another $name in this repository"
    flock 9
  fi
  "$@"  # not in an || list, which would switch `set -e` off inside
  exec 9>&-
}

# shellcheck shell=bash disable=SC2034
# What the scripts of this folder and of tests/ share; sourced, never run. Sets `root` (the repository) and `deps`.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
deps=$root/.deps  # what setup.sh installs beside the system's packages; ignored by git

# Names of exit codes; docs/troubleshooting.md, "How a run ends".
readonly exit_usage=64 exit_missing=69 exit_lost_rank=75

say() { printf '%s\n' "$*"; }

# die CODE WHERE WHAT FIX: the one form of an error in this project.
die() {
  printf 'error: %s: %s\n' "$2" "$3" >&2
  [[ -z ${4:-} ]] || printf '  fix: %s\n' "$4" >&2
  exit "$1"
}

# print_header FILE: the comment at a script's start, which is its help.
print_header() { sed -n '2,/^set /s/^# \{0,1\}//p' "$1" | grep -v '^set '; }

have() { command -v "$1" >/dev/null 2>&1; }

# Cores that this process may use: its affinity, or less where a container's quota says so.
cores() {
  local count quota period
  count=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
  if [[ -r /sys/fs/cgroup/cpu.max ]]; then
    read -r quota period </sys/fs/cgroup/cpu.max
    if [[ $quota != max ]] && ((quota / period < count)); then count=$(((quota + period - 1) / period)); fi
  fi
  say $((count > 0 ? count : 1))
}

# Compilations at once: one a core, and 1 GiB of memory for each (files with torch's headers need that).
jobs_for_build() {
  local gib at_most
  gib=$(($(awk '/^MemAvailable/ {print $2}' /proc/meminfo) / 1048576))
  at_most=$(cores)
  say $((gib < 1 ? 1 : gib < at_most ? gib : at_most))
}

free_mib() { df -Pm "$1" | awk 'NR == 2 {print $4}'; }

# --- LibTorch and CUDA: where they are -------------------------------------------------------------------------------

readonly torch_version=2.11.0

# complete PART: .deps/PART was installed to the end, from the requirements as they are now.
complete() {
  local stamp=$deps/$1/.complete
  [[ -f $stamp ]] && [[ $(<"$stamp") == "$(recipe_hash "$1")" ]]
}

recipe_hash() { sha256sum <"$root/common/setup/requirements-$1.txt" | cut -d' ' -f1; }

# The torch package of python3, if it is the version that Stagecraft is built with; empty otherwise.
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

# The torch package directory for a preset (cpu, cuda); empty: none. FindLibTorch.cmake looks in the same order.
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

# An nvcc of CUDA 13; empty: none. Stagecraft.cmake takes what this prints through CUDACXX.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc /usr/local/cuda-13*/bin/nvcc \
    "$deps/cuda-toolkit/nvidia/cu13/bin/nvcc"; do
    [[ -n $candidate && -x $candidate ]] || continue
    if "$candidate" --version 2>/dev/null | grep -q 'release 13\.'; then
      say "$candidate"
      return
    fi
  done
}

gpu_visible() {
  [[ ${CUDA_VISIBLE_DEVICES-all} =~ ^(|-1)$ ]] && return 1
  have nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q '^GPU '
}

# The newest GPU here, if it is older than the kernels need (base/gpu_architectures.h); empty otherwise, or where nothing says so.
too_old_gpu() {
  { nvidia-smi --query-gpu=compute_cap,name --format=csv,noheader 2>/dev/null || true; } | sort -rV |
    awk -F', ' 'NR == 1 && $1 ~ /^[0-9]+\.[0-9]+$/ && $1 + 0 < 8 {print $2 ", compute capability " $1 ": the kernels need 8.0 or newer"}'
}

# --- configure and build ---------------------------------------------------------------------------------------------

# configure PRESET: makes build/PRESET ready for a build. What CMake prints is shown only if it fails. A build folder from
# another place (the repository was moved) or from a configuration that failed is begun anew.
configure() {
  local preset=$1 build=$root/build/$1 log=$root/build/$1/configure.log
  if [[ -f $build/build.ninja ]] && grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt"; then
    return 0
  fi
  mkdir -p "$build"
  if [[ $preset == cuda && -z ${CUDACXX:-} ]]; then
    CUDACXX=$(find_nvcc)
    export CUDACXX
  fi
  (cd "$root" && cmake --fresh --preset "$preset") >"$log" 2>&1 || {
    sed -n '/^CMake Error/,$p' "$log" | head -n 40 >&2
    die "$exit_missing" "cmake --preset $preset" "failed; its errors are above, all is in build/$preset/configure.log" "common/setup/doctor.sh names what is missing"
  }
}

# build PRESET WHAT-TO-SAY TARGET...: nothing is printed where nothing is to be done; otherwise WHAT-TO-SAY and one line of
# progress, redrawn on a terminal, every 20 s elsewhere. The compilers' output is in build/PRESET/build.log.
build() {
  local preset=$1 label=$2 log=$root/build/$1/build.log pid
  shift 2
  # CCACHE_BASEDIR: another copy of the repository, elsewhere, finds the same objects.
  CCACHE_BASEDIR=$root NINJA_STATUS='[%f/%t] ' setpriv --pdeathsig TERM -- \
    ninja -C "$root/build/$preset" -j "$(jobs_for_build)" "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  show_progress "$pid" "$label" "$log"
  wait "$pid" || {
    sed -n '/^FAILED\|^ninja: error/,$p' "$log" | head -n 80 >&2
    die "$exit_missing" "build/$preset" "the build failed; the first lines are above, all are in build/$preset/build.log" \
      "common/setup/doctor.sh names what is missing; too little memory or disk also ends here"
  }
}

show_progress() {
  local pid=$1 label=$2 log=$3 ticks=0 line
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.1
    ticks=$((ticks + 1))
    if ((ticks == 10)); then say "$label"; fi
    line=$(tail -n 1 "$log" | cut -c "1-$((${COLUMNS:-80} - 3))")
    if [[ -t 1 ]]; then
      if ((ticks > 10 && ticks % 3 == 0)); then printf '\r\033[K  %s' "$line"; fi
    elif ((ticks % 200 == 0)); then
      say "  $line"
    fi
  done
  if [[ -t 1 ]] && ((ticks > 10)); then printf '\r\033[K'; fi
}

# locked NAME COMMAND...: one at a time in this repository (a build folder, .deps).
locked() {
  local name=$1
  shift
  mkdir -p "$deps"
  exec 9>"$deps/.$name.lock"
  if ! flock -n 9; then
    say "waiting for another $name in this repository"
    flock 9
  fi
  "$@"  # not in an || list, which would switch `set -e` off inside
  exec 9>&-
}

#!/usr/bin/env bash
# Says what Stagecraft finds on this machine: tools, libraries, GPU, cores, memory, limits of a container.
# Changes nothing.
#   usage  common/setup/doctor.sh
#   exit   0 nothing that a CPU run needs is missing; 69 otherwise, each missing thing with its fix
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
(($# == 0)) || die "$exit_usage" "$1" "doctor.sh takes no argument" "common/setup/doctor.sh"

status=0
row() { printf '  %-18s %s\n' "$1" "$2"; }
missing() {
  row "$1" "missing"
  row '' "fix: $2"
  status=$exit_missing
}
hint() {
  row "$1" "$2"
  row '' "hint: $3"
}

# tool NAME COMMAND PACKAGE VERSION-COMMAND...: reports one tool and its version, or as missing from PACKAGE.
tool() {
  local name=$1 command=$2 package=$3
  shift 3
  if have "$command"; then
    row "$name" "$("$@" 2>&1 | head -n 1) ($(command -v "$command"))"
  else
    missing "$name" "common/setup/setup.sh, or apt-get install $package"
  fi
}

say "machine"
row system "$(. /etc/os-release && printf '%s' "${PRETTY_NAME:-unknown}"), $(uname -sm)"
row cores "$(cores) usable of $(nproc --all)"
gib() { awk -v kib="$1" 'BEGIN {printf "%.1f GiB", kib / 1048576}'; }
of_meminfo() { gib "$(awk -v name="$1:" '$1 == name {print $2}' /proc/meminfo)"; }
row memory "$(of_meminfo MemAvailable) free of $(of_meminfo MemTotal)"
limit=$(memory_limit '')
if [[ -n $limit ]] && ((limit >> 50 == 0)); then  # version 1 gives a huge number if there is no limit
  row "container limit" "$(gib $((limit / 1024))) of memory"
fi
disk=$(free_mib "$root")
if ((disk < 3000)); then
  hint disk "$disk MB free here" "the first use takes 3000 MB (LibTorch, build)"
else
  row disk "$((disk / 1000)) GB free here"
fi
shm=$(number "$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 {print $4}' || true)" '')
if [[ -z $shm ]]; then
  hint "/dev/shm" "not there" "ranks on one host exchange messages through it"
elif ((shm < 256)); then
  hint "/dev/shm" "$shm MB free" "ranks on one host exchange messages through it: docker run --shm-size=1g"
else
  row "/dev/shm" "$shm MB free"
fi

say "tools"
compiler=$(compiler) mpirun=$(mpi_command mpirun) mpicc=$(mpi_command mpicc)
# shellcheck disable=SC2086  # CXX may hold flags too
tool compiler "${compiler%% *}" g++ $compiler -dumpfullversion
tool CMake cmake cmake cmake --version
tool Ninja ninja ninja-build ninja --version
if have ccache; then
  tool ccache ccache ccache ccache --version
else
  row ccache "none (builds go without it)"
fi
tool Python python3 python3 python3 --version
tool "Open MPI" "$mpirun" "openmpi-bin libopenmpi-dev" "$mpirun" --version
tool "MPI compiler" "$mpicc" libopenmpi-dev "$mpicc" --version
if have "$mpicc" && ! is_open_mpi "$mpicc"; then
  missing "MPI compiler" \
    "mpicc on PATH is another MPI's; apt-get install libopenmpi-dev, or put Open MPI's first"
fi
if have "$mpirun"; then
  # mpirun is asked to start ranks on this host alone, even inside a Slurm job.
  if ! is_open_mpi "$mpirun"; then
    missing "Open MPI" "mpirun on PATH is another MPI's; apt-get install openmpi-bin, or put Open MPI's first"
  elif words=$(OMPI_MCA_plm=${OMPI_MCA_plm:-^slurm} OMPI_MCA_ras=${OMPI_MCA_ras:-^slurm} \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 20 \
    "$mpirun" -n 2 --oversubscribe --bind-to none true </dev/null 2>&1); then
    row '' "starts two processes"
  else
    row '' "$(head -n 3 <<<"$words" | tr '\n' ' ')"
    missing "two processes" \
      "mpirun cannot start two processes here (its words are above); is the host's own name in /etc/hosts?"
  fi
fi
if wanted=$("$root/common/setup/setup.sh" --check 2>&1); then
  row setup "complete"
else
  missing setup "common/setup/setup.sh"
  printf '%s\n' "$wanted" | sed -n 's/^  \([^f]\)/                       \1/p'
fi

say "LibTorch"
for preset in cpu cuda; do
  home=$(torch_for $preset)
  if [[ -n $home ]]; then
    row "for $preset" "$home"
  elif [[ $preset == cpu ]]; then
    missing "for $preset" "common/setup/setup.sh"
  else
    row "for $preset" "not installed (common/setup/setup.sh --cuda)"
  fi
done

say "GPU"
if gpu_visible; then
  nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv,noheader |
    while read -r line; do row GPU "$line"; done
  too_old=$(too_old_gpu)
  if [[ -n $too_old ]]; then row '' "$too_old: runs use the CPU"; fi
else
  row GPU "none visible: runs use the CPU"
fi
nvcc=$(find_nvcc)
row nvcc "${nvcc:-none of CUDA 13 (common/setup/setup.sh --cuda brings one)}"
home=$(torch_for cuda)
if [[ -n $home ]]; then
  library=$(dirname "$home")/nvidia/nccl/lib/libnccl.so.2
  if [[ -f $library ]]; then
    row "NCCL of LibTorch" "$library"
  else
    hint "NCCL of LibTorch" "not beside it" "common/setup/setup.sh --cuda"
  fi
fi
other=$(ldconfig -p 2>/dev/null | awk '/libnccl\.so\.2/ {print $NF; exit}' || true)
if [[ -n $other ]]; then row "NCCL of the system" "$other (not used: the build links LibTorch's)"; fi

for preset in cpu cuda; do
  program=$root/build/$preset/bin/doctor
  [[ -x $program ]] || continue
  say "build/$preset"
  "$program" || status=$exit_missing
done
exit "$status"

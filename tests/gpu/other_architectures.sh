#!/usr/bin/env bash
# On a machine with a GPU: do kernels compiled for another architecture compute the same? Builds three times,
# for PTX of 8.0 alone, as everybody builds, and for 8.6 alone, in a folder of its own; takes some minutes on
# 16 cores.
#   usage  tests/gpu/other_architectures.sh [OUT [COMMIT]]
#     OUT     gets gpu_other_architectures.json and steps.log (default build/other_architectures)
#     COMMIT  what the result names where there is no git
#   checks 1 the tests of our kernels, and a run of lesson 00, by PTX of 8.0, which the driver compiles for
#            this GPU
#          2 every kernel's output: machine code of this GPU against PTX of 8.0 (CUDA_FORCE_PTX_JIT=1), bit
#            for bit
#          3 lesson 00's losses: the same two
#          4 a build without kernels for this GPU ends with 69, and says what it has
#   exit   0 all as expected, differences of 2 and 3 aside: they are named; 1 something else; 69 no GPU
# LibTorch's own kernels bring no PTX that CUDA_FORCE_PTX_JIT could compile here: only check 2, which runs
# none of them, sets that variable.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/lib.sh"
cd "$root" || exit 1
gpu_visible ||
  die "$exit_missing" "$0" "no GPU is visible on this machine" "run it where nvidia-smi -L names one"
out=${1:-build/other_architectures} folder=build/cuda_architectures
mkdir -p "$out" "$folder"
rm -f "$out/steps.log"
out=$(realpath -- "$out")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
CUDACXX=$(find_nvcc)
export CUDACXX CUDA_CACHE_PATH=$scratch/cache OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
jobs=$(jobs_for_build)
failed=0

# step NAME COMMAND...: runs a step; its output goes to SCRATCH/NAME.log and to the end of OUT/steps.log, its
# exit code and seconds to steps.tsv.
step() {
  local name=$1 began=$SECONDS status=0
  shift
  "$@" >"$scratch/$name.log" 2>&1 </dev/null || status=$?
  { say "== $name: exit $status, $((SECONDS - began)) s"; cat "$scratch/$name.log"; } >>"$out/steps.log"
  printf '%s\t%d\t%d\n' "$name" "$status" $((SECONDS - began)) | tee -a "$scratch/steps.tsv"
  return "$status"
}
must() {
  step "$@" && return 0
  failed=1
  tail -n 25 "$scratch/$1.log"
  return 1
}
# build_for ARCHITECTURES TARGET...: builds the targets for these GPU architectures.
build_for() {
  local architectures=$1
  shift
  cmake --preset cuda -B "$folder" -DCMAKE_CUDA_ARCHITECTURES="$architectures" &&
    ninja -C "$folder" -j "$jobs" "$@"
}
lesson() {
  "$folder/bin/00_one_device" --device cuda --workload tests/workloads/four_blocks.json \
    --strategy lessons/00_one_device/config.json --ops deterministic --set precision.dtype=bf16 \
    --steps 20 --out "$scratch/run_$1"
}
test_program() { "$(find "$folder/tests" -name "$1" -type f)"; }
bits() { "$folder/tests/gpu/kernel_bits" "$scratch/$1"; }

tests=(ops_fused_test optim_cuda_test replica_hash_cuda_test)
must build_ptx build_for 80-virtual "${tests[@]}" kernel_bits 00_one_device doctor
step bits_ptx bits ptx # without the variable: there is no machine code
for name in "${tests[@]}"; do must "$name" test_program "$name"; done
CUDA_CACHE_PATH=$scratch/cold must lesson_ptx_first lesson ptx_first # the driver compiles what it loads
CUDA_CACHE_PATH=$scratch/cold must lesson_ptx lesson ptx             # and has kept it
must build_as_shipped build_for "" kernel_bits 00_one_device doctor
step doctor "$folder/bin/doctor"
must bits_machine_code bits machine_code
CUDA_FORCE_PTX_JIT=1 must bits_forced bits forced
must lesson_machine_code lesson machine_code
CUDA_FORCE_PTX_JIT=1 step lesson_forced lesson forced
must build_for_86 build_for 86-real 00_one_device
if [[ $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1) != 8.[6-9] ]]; then
  status=0
  step lesson_for_86 lesson for_86 || status=$?
  if [[ $status != "$exit_missing" ]] ||
    ! grep -q "kernels for the CUDA architectures 86-real alone" "$scratch/lesson_for_86.log"; then
    failed=1
    tail -n 25 "$scratch/lesson_for_86.log"
  fi
fi
commit=${2:-$(git rev-parse --short=12 HEAD 2>/dev/null || true)}
gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
python3 tests/gpu/compare_bits.py "$scratch" "$out" "$commit" "$gpu" || failed=1
exit "$failed"

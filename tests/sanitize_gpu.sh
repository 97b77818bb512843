#!/usr/bin/env bash
# Our GPU kernels under compute-sanitizer: out-of-bounds accesses (memcheck) and races in shared memory
# (racecheck), and two kernels that are wrong on purpose, which it must find. On a machine with a GPU; all
# checks run at once, in about a minute.
#   usage  tests/sanitize_gpu.sh [FOLDER]    a folder configured with --preset cuda, which is built first, or
#          one that just holds ops_fused_test, optim_cuda_test, replica_hash_cuda_test and sanitizer_faults
#          (default build/cuda)
#   exit   0 only what is wrong on purpose was found; 1 something else was, that was not, or a test failed or
#          was skipped; 69 no compute-sanitizer
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-build/cuda}
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
  { echo "error: compute-sanitizer is not on PATH
  fix: install the CUDA toolkit, or put its bin folder on PATH" >&2; exit 69; }
[[ ! -e $folder/CMakeCache.txt ]] ||
  cmake --build "$folder" --target ops_fused_test optim_cuda_test replica_hash_cuda_test sanitizer_faults
fused=$(find "$folder" -name ops_fused_test -type f)
optim=$(find "$folder" -name optim_cuda_test -type f)
hash=$(find "$folder" -name replica_hash_cuda_test -type f)
faults=$(find "$folder" -name sanitizer_faults -type f)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
check() { # TOOL PROGRAM FILTER FLAGS...
  local status=0 log
  log=$(mktemp -p "$logs")
  "$sanitizer" --tool "$1" --error-exitcode 1 "${@:4}" "$2" --gtest_filter="$3" >"$log" 2>&1 || status=1
  grep -q SUMMARY "$log" && grep -qE 'PASSED.* [1-9][0-9]* test' <(sed 's/\x1b\[[0-9;]*m//g' "$log") ||
    status=1
  if grep -q SKIPPED "$log"; then
    echo "error: tests were skipped; this needs a GPU" >&2
    status=1
  fi
  echo "$1: $(basename "$2") $3: $(grep -E 'SUMMARY' "$log" || tail -n 3 "$log")"
  [[ $status -eq 0 ]] || grep -E -A4 '=========.*(Error|error|Race)|FAILED' "$log" | head -n 40
  return "$status"
}
must_find() { # TOOL FAULT PATTERN FLAGS...
  local log found
  log=$(mktemp -p "$logs")
  "$sanitizer" --tool "$1" --error-exitcode 1 "${@:4}" "$faults" "$2" >"$log" 2>&1 && found=0 || found=$?
  if [[ $found -ne 0 ]] && grep -qE "$3" "$log"; then
    echo "$1: finds the planted fault '$2'"
  else
    echo "error: $1 does not find the planted fault '$2' (exit $found)" >&2
    tail -n 5 "$log" >&2
    return 1
  fi
}
jobs=()
# Memcheck leaves out tests that only call libraries.
check memcheck "$fused" 'FusedOpsTest.*-*Attention*:*Products*:*Graph*' & jobs+=("$!")
check memcheck "$optim" '*-*Captured*' & jobs+=("$!")
check racecheck "$optim" '*-*Captured*' & jobs+=("$!")
# Each tensor gets a cudaMalloc of its own, so that a read after a ragged tensor's last word leaves its
# memory; LibTorch's allocator would hide it in a block of 2 MiB.
PYTORCH_NO_CUDA_MEMORY_CACHING=1 check memcheck "$hash" '*' & jobs+=("$!")
# Racecheck looks only at this project's kernels, by their mangled names: ATen's, which tests compare with,
# would take minutes. It fails without cause in programs that use cublasLt.
own=(--kernel-name kns=sc5fused)
must_find racecheck race 'hazards? displayed \([1-9]' "${own[@]}" & jobs+=("$!")
must_find memcheck bounds 'Invalid __global__ write' & jobs+=("$!")
without='*Attention*:*Products*:*Graph*:*BitEqual*:*Allocates*'
for test in $("$fused" --gtest_list_tests --gtest_filter="FusedOpsTest.*-$without" | grep '^  '); do
  check racecheck "$fused" "FusedOpsTest.$test" "${own[@]}" & jobs+=("$!")
done
[[ ${#jobs[@]} -gt 12 ]] || { echo "error: $fused lists no tests" >&2; exit 1; }
status=0
for job in "${jobs[@]}"; do wait "$job" || status=1; done
exit "$status"

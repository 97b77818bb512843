#!/usr/bin/env bash
# Our GPU kernels under compute-sanitizer: out-of-bounds accesses (memcheck) and races in shared memory (racecheck). On a
# machine with a GPU; the four checks run at once, and take minutes.
#   usage  tests/sanitize_gpu.sh [FOLDER]    a folder configured with --preset cuda, which is built first, or one that just holds
#                                            ops_fused_test and optim_cuda_test (default build/cuda)
#   exit   0 nothing was found; 1 something was, a test failed or was skipped; 69 no compute-sanitizer
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-build/cuda}
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
  { echo "error: compute-sanitizer is not on PATH
  fix: install the CUDA toolkit, or put its bin folder on PATH" >&2; exit 69; }
[[ ! -e $folder/CMakeCache.txt ]] || cmake --build "$folder" --target ops_fused_test optim_cuda_test
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
check() { # TOOL TEST FILTER: not what calls libraries only
  local log=$logs/$1_$2 status=0
  "$sanitizer" --tool "$1" --error-exitcode 1 "$(find "$folder" -name "$2" -type f)" --gtest_filter="$3" >"$log" 2>&1 || status=1
  echo "$1: $2 $3"
  grep -E 'SUMMARY|PASSED|FAILED|SKIPPED' "$log" || status=1
  if grep -q SKIPPED "$log"; then
    echo "error: tests were skipped; this needs a GPU" >&2
    status=1
  fi
  return "$status"
}
ours='FusedOpsTest.*-*Attention*:*Products*:*Graph*'
jobs=()
check memcheck ops_fused_test "$ours" & jobs+=("$!")
check memcheck optim_cuda_test '*-*Captured*' & jobs+=("$!")
check racecheck ops_fused_test "$ours" & jobs+=("$!")
check racecheck optim_cuda_test '*-*Captured*' & jobs+=("$!")
status=0
for job in "${jobs[@]}"; do wait "$job" || status=1; done
exit "$status"

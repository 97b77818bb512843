#!/usr/bin/env bash
# Our GPU kernels under compute-sanitizer: out-of-bounds accesses (memcheck) and races in shared memory (racecheck). On a
# machine with a GPU; slow.
#   usage  tests/sanitize_gpu.sh [BUILD]     a folder configured with --preset cuda (default build/cuda)
#   exit   0 nothing was found; 1 something was, a test failed or was skipped; 69 no compute-sanitizer
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/cuda}
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
  { echo "error: compute-sanitizer is not on PATH
  fix: install the CUDA toolkit, or put its bin folder on PATH" >&2; exit 69; }
cmake --build "$build" --target ops_fused_test optim_cuda_test
status=0
check() { # TOOL TEST FILTER: not what calls libraries only
  local log
  log=$(mktemp)
  echo "$1: $2 $3"
  "$sanitizer" --tool "$1" --error-exitcode 1 "$(find "$build" -name "$2" -type f)" --gtest_filter="$3" >"$log" 2>&1 || status=1
  grep -E 'SUMMARY|PASSED|FAILED|SKIPPED' "$log" || status=1
  if grep -q SKIPPED "$log"; then
    echo "error: tests were skipped; this needs a GPU" >&2
    status=1
  fi
  rm -f "$log"
}
ours='FusedOpsTest.*-*Attention*:*Products*:*Graph*'
check memcheck ops_fused_test "$ours"
check memcheck optim_cuda_test '*-*Captured*'
check racecheck ops_fused_test "$ours"
check racecheck optim_cuda_test '*-*Captured*'
exit "$status"

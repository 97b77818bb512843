#!/usr/bin/env bash
# Our GPU kernels under compute-sanitizer: out-of-bounds accesses (memcheck) and races in shared memory (racecheck). On a
# machine with a GPU; all checks run at once, and take a minute or two.
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
fused=$(find "$folder" -name ops_fused_test -type f)
optim=$(find "$folder" -name optim_cuda_test -type f)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
check() { # TOOL PROGRAM FILTER FLAGS...
  local status=0 log
  log=$(mktemp -p "$logs")
  "$sanitizer" --tool "$1" --error-exitcode 1 "${@:4}" "$2" --gtest_filter="$3" >"$log" 2>&1 || status=1
  grep -q SUMMARY "$log" && grep -qE 'PASSED.*  [1-9][0-9]* test' <(sed 's/\x1b\[[0-9;]*m//g' "$log") || status=1
  if grep -q SKIPPED "$log"; then
    echo "error: tests were skipped; this needs a GPU" >&2
    status=1
  fi
  echo "$1: $(basename "$2") $3: $(grep -E 'SUMMARY' "$log" || tail -n 3 "$log")"
  [[ $status -eq 0 ]] || grep -E -A4 '=========.*(Error|error|Race)|FAILED' "$log" | head -n 40
  return "$status"
}
jobs=()
# Not what calls libraries only.
check memcheck "$fused" 'FusedOpsTest.*-*Attention*:*Products*:*Graph*' & jobs+=("$!")
check memcheck "$optim" '*-*Captured*' & jobs+=("$!")
check racecheck "$optim" '*-*Captured*' & jobs+=("$!")
# Racecheck looks at our kernels alone (their mangled names; ATen's, to which they are compared, would take it minutes), and
# fails by itself in programs that use cublasLt.
for test in $("$fused" --gtest_list_tests --gtest_filter='FusedOpsTest.*-*Attention*:*Products*:*Graph*:*BitEqual*:*Allocates*' | grep '^  '); do
  check racecheck "$fused" "FusedOpsTest.$test" --kernel-name kns=sc5fused & jobs+=("$!")
done
[[ ${#jobs[@]} -gt 9 ]] || { echo "error: $fused lists no tests" >&2; exit 1; }
status=0
for job in "${jobs[@]}"; do wait "$job" || status=1; done
exit "$status"

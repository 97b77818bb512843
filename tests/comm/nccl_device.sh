#!/usr/bin/env bash
# Builds and runs every test of comm that needs GPUs, on the machine it is started on, and fails if one was
# skipped that this machine has the GPUs for. Two GPUs run all but the entries of four ranks; four run all.
#   usage  tests/comm/nccl_device.sh [BUILD [REGEX]]
#     BUILD  a folder configured with --preset cuda (default build/cuda, made if it is not there)
#     REGEX  only entries that match, as ctest -R (default: all of comm that need GPUs), where a machine is
#            lent for minutes
#   exit   0 all ran and passed; 1 otherwise
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/cuda}
regex=${2:-^comm_(local_test|nccl|staged)}
gpus=$(nvidia-smi --list-gpus | wc -l)
echo "comm on $gpus GPUs:"
nvidia-smi --list-gpus
mkdir -p "$build"
[[ -f $build/CMakeCache.txt ]] || cmake --preset cuda -B "$build" >"$build.cmake.log" ||
  { cat "$build.cmake.log"; exit 1; }
cmake --build "$build" --target \
  base_rooms_tests comm_nccl_test comm_staged_test comm_nccl_process_test nccl_program \
  >"$build.build.log" 2>&1 ||
  { tail -n 40 "$build.build.log"; exit 1; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
ctest --test-dir "$build" -R "$regex" --output-on-failure 2>&1 | tee "$log" || status=1

# Each line names a test and the GPUs it needs: as many as ranks if each has its own, one if they share it.
while read -r name; do
  needs=1
  case $name in
    comm_nccl_test_* | comm_nccl_conformance_test_*) needs=${name##*_} ;;
    comm_nccl_process_test_[0-9]nccl | comm_nccl_process_test_[0-9]graph | comm_nccl_process_test_[0-9]window)
      needs=${name#comm_nccl_process_test_}
      needs=${needs%%[a-z]*}
      ;;
  esac
  if ((gpus >= needs)); then
    echo "error: $name was skipped, but needs $needs of the $gpus GPUs here"
    status=1
  fi
done < <(sed -n 's/^[ \t]*[0-9]* - \(comm_[a-z0-9_]*\) (Skipped).*/\1/p' "$log")
exit $status

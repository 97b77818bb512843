#!/usr/bin/env bash
# What is too long for CI: every test under both sanitizers, all planted faults and mutants, then all tests of the cpu preset again and again in changing order.
#   usage  tests/soak.sh [--minutes N] [-R REGEX]
#     --minutes N   how long the repeats go on after the sanitizers (default 30); a round that has begun is ended
#     -R REGEX      only tests whose name matches, and no mutants
#   exit   as tests/run.sh; the last line is "N passed, N failed, N skipped", counted over all rounds
# ThreadSanitizer sees the ranks that are threads (Local); under mpirun ranks are processes, and Open MPI was built without it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
cd "$root"

minutes=30 only=()
while (($#)); do
  case $1 in
    --minutes)
      [[ ${2:-} =~ ^[0-9]{1,6}$ ]] || die "$exit_usage" "--minutes" "'${2:-}' is not a number" "tests/soak.sh --minutes 30"
      minutes=$((10#$2))
      shift
      ;;
    -R)
      (($# >= 2)) || die "$exit_usage" "-R" "its regular expression is missing" "tests/soak.sh -R comm"
      only=(-R "$2")
      shift
      ;;
    -h | --help)
      print_header "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die "$exit_usage" "$1" "unknown option of tests/soak.sh" "tests/soak.sh --help" ;;
  esac
  shift
done

mkdir -p build
stage "setup" common/setup/setup.sh --quiet --dev
stage "build, preset cpu" cpu_build
stage "address and undefined" sanitized cpu-asan all "${only[@]}"
stage "threads" sanitized cpu-tsan all -LE mpi "${only[@]}"
if ((${#only[@]} == 0)); then
  # Half an hour each. The record says which survived.
  stage "planted faults" tests/mutate/base.sh --faults
  stage "mutants of the base" tests/mutate/base.sh --report docs/results/mutation_base.json
  stage "mutants of pipedream" tests/mutate/pipedream.sh
  # 10 minutes a target. An input that breaks a rule lies in build/fuzz/found afterwards.
  stage "fuzz targets" tests/fuzz/run.sh --seconds 600
  stage "100 runs killed twice" env STAGECRAFT_KILLS=100 python3 -B tests/processes/checkpoint_test.py build/cpu/bin Killed
  stage "20 pairs of runs in one folder" env STAGECRAFT_RUN_PAIRS=20 python3 -B tests/processes/folders_test.py build/cpu/bin TwoRuns
  stage "all pairs of layouts" env STAGECRAFT_PAIRS=0 python3 -B tests/processes/checkpoint_test.py build/cpu/bin AnyToAny.test_pairs_of_layouts
fi
round=0 end=$((SECONDS + 60 * minutes))
while ((SECONDS < end)); do
  round=$((round + 1))
  stage "round $round" run_ctest cpu --schedule-random "${only[@]}"
done
finish

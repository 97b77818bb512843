#!/usr/bin/env bash
# Everything, in parts of at most 45 minutes on two cores: run at the end of an issue, before what it leaves
# behind is committed.
#   usage  tests/soak.sh [--list] [--minutes N] [PART...]
#     PART          tests processes processes_more tools exercises files address address_processes threads
#                   faults mutants mutants_pipedream fuzz kills repeats cuda aarch64; without one: all, in
#                   this order
#     --minutes N   how long `repeats` runs all tests in changing order (default 30); a round that has begun
#                   is ended
#     --list        the parts, and when each last passed
#   exit   as tests/run.sh; the last line is "N passed, N failed, N skipped", counted over all parts
# A part that passes leaves its date in docs/records/soak.json, and sums of what it found in order in
# tests/setup/soaked.txt: what they name tests/run.sh and .ci/run leave out until it changes. `mutants` takes
# files without such a sum, 40 minutes at a time. ThreadSanitizer sees the ranks that are threads (Local);
# under mpirun ranks are processes, and Open MPI was built without it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
cd "$root"

all_parts=(tests processes processes_more tools exercises files address address_processes threads faults
  mutants mutants_pipedream fuzz kills repeats cuda aarch64)
minutes=30 parts=()
while (($#)); do
  case $1 in
    --minutes)
      [[ ${2:-} =~ ^[0-9]{1,6}$ ]] ||
        die "$exit_usage" "--minutes" "'${2:-}' is not a number" "tests/soak.sh --minutes 30"
      minutes=$((10#$2))
      shift
      ;;
    --list)
      exec python3 -B tests/setup/tiers.py last "${all_parts[@]}"
      ;;
    -h | --help)
      print_header "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      [[ " ${all_parts[*]} " == *" $1 "* ]] ||
        die "$exit_usage" "$1" "no part of the soak" "one of: ${all_parts[*]}"
      parts+=("$1")
      ;;
  esac
  shift
done
((${#parts[@]})) || parts=("${all_parts[@]}")

# of_part PART: the ctest entries of a part, as a regular expression.
of_part() { python3 -B tests/setup/tiers.py part "$1" build/cpu; }

# entries PART: runs the ctest entries of a part, with every setting.
entries() {
  run_ctest cpu -R "$(of_part "$1")"
}

# passing PART: runs a part and notes which tests passed, even if others failed.
passing() {
  local status=0
  entries "$1" || status=$?
  python3 -B tests/setup/tiers.py passed build/cpu/ctest.xml
  return "$status"
}

# repeats: runs tests again with ordinary settings, because one round of all settings takes longer than a part
# may.
repeats() {
  local end=$((SECONDS + 60 * minutes))
  while ((SECONDS < end)); do
    STAGECRAFT_SETTINGS='' run_ctest cpu --schedule-random -LE '^(slow|exercises)$'
  done
}

# all_sanitized PRESET CTEST-ARGUMENTS...: also builds the exercises, which the default target leaves out.
all_sanitized() {
  local preset=$1
  shift
  made "$preset" "building the exercises with $preset" exercises
  sanitized "$preset" all "$@"
}

part() {
  case $1 in
    tests) entries tests ;;
    processes) entries processes ;;
    processes_more) entries processes_more ;;
    tools)
      passing tools
      ;;
    exercises)
      made cpu "building the exercises" exercises
      passing exercises
      ;;
    files)
      check_format --all
      single_files --all
      common/setup/tidy.sh --all
      { common/setup/tidy.sh --list && python3 -B tests/setup/single_files.py --list && own_files '*.py'; } |
        xargs python3 -B tests/setup/tiers.py record file
      ;;
    address) all_sanitized cpu-asan -LE '^processes$' -E "$(of_part tools)" ;;
    address_processes) all_sanitized cpu-asan -L '^processes$' ;;
    threads) all_sanitized cpu-tsan -LE mpi -E "$(of_part tools)" ;;
    faults)
      tests/mutate/base.sh --faults --record
      tests/mutate/pipedream.sh --faults --record
      lessons/hunt.sh --prove --record
      ;;
    mutants) STAGECRAFT_SETTINGS='' tests/mutate/base.sh --changed --record --minutes 40 --jobs "$(cores)" ;;
    mutants_pipedream) tests/mutate/pipedream.sh --record ;;
    # Fuzzing takes ten minutes in all; an input that breaks a rule is left in build/fuzz/found.
    fuzz) tests/fuzz/run.sh --seconds 75 ;;
    kills)
      STAGECRAFT_KILLS=100 python3 -B tests/processes/checkpoint_test.py build/cpu/bin Killed
      STAGECRAFT_RUN_PAIRS=20 python3 -B tests/processes/folders_test.py build/cpu/bin TwoRuns
      STAGECRAFT_PAIRS=300 python3 -B tests/processes/checkpoint_test.py build/cpu/bin \
        AnyToAny.test_pairs_of_layouts
      ;;
    repeats) repeats ;;
    cuda)
      install_cuda
      cuda_all
      run_ctest cpu -R 'real_model|checkpoint_python|torch_'
      python3 -B tests/setup/tiers.py passed build/cpu/ctest.xml
      ;;
    aarch64)
      STAGECRAFT_SETTINGS='' tests/aarch64.sh
      python3 -B tests/setup/tiers.py record aarch64 "${processor_code[@]}"
      ;;
  esac
}

mkdir -p build
stage "setup" common/setup/setup.sh --quiet --dev --curves
stage "build, preset cpu" cpu_build
export STAGECRAFT_SETTINGS=all
for name in "${parts[@]}"; do
  begin=$SECONDS before=$passed failures=${#failed_stages[@]}
  stage "$name" part "$name"
  ((${#failed_stages[@]} > failures)) ||
    python3 -B tests/setup/tiers.py ran "$name" $((SECONDS - begin)) $((passed - before))
done
finish

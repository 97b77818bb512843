#!/usr/bin/env bash
# Mutants of pipedream's schedules, checker and simulator, or its planted faults, against its tests.
#   usage  tests/mutate/pipedream.sh [--faults] [flags of mutate.py, for example --sample 20]
#   exit   as mutate.py: 0 if at least 90 % of the mutants die, or every fault is noticed
# Needs a compiler, nlohmann-json and GoogleTest; no LibTorch. A mutant takes about two seconds.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The build compiles sources newer than their objects (all if a header is newer) and links the library's
# tests.
# shellcheck disable=SC2016
build='
set -e
mkdir -p build/mutant
tests="$(ls tests/pipedream/*_test.cpp | grep -v command_test) tests/pipedream/support.cpp"
sources="$(ls common/input/*.cpp) $(ls pipedream/*.cpp | grep -v main.cpp) $tests"
headers="common/input pipedream tests/pipedream"
objects=
for source in $sources; do
  object=build/mutant/$(echo "$source" | tr / _).o
  objects="$objects $object"
  if [ ! -f "$object" ] || [ "$source" -nt "$object" ] ||
    [ -n "$(find $headers -name "*.h" -newer "$object" -print -quit)" ]; then
    ${CXX:-c++} -std=c++20 -O1 -D_GLIBCXX_ASSERTIONS -I. -c "$source" -o "$object"
  fi
done
${CXX:-c++} -o build/mutant/tests $objects -lgtest -lgtest_main -lpthread'

# A mutant may loop or allocate for ever, so it gets 60 s and 4 GB.
test='ulimit -v 4000000; build/mutant/tests --gtest_fail_fast --gtest_brief=1 --gtest_filter="{filter}"'
common=(--build "$build" --copy common/input pipedream tests/pipedream
  tests/support/answers.h tests/support/bad_json.h --timeout 60 --work build/mutate_pipedream)

if [[ ${1:-} == --faults ]]; then
  shift
  exec python3 tests/mutate/mutate.py "${common[@]}" --test "$test" \
    --patches 'tests/faults/pipedream_*.patch' "$@"
fi
files=()
for name in generate weight_versions messages check check_deadlock check_versions simulate formulas \
  partition schedule; do
  files+=("pipedream/$name.cpp")
done
exec python3 tests/mutate/mutate.py "${common[@]}" --test "${test/'{filter}'/*}" \
  --accept tests/mutate/pipedream_equivalent.txt "$@" "${files[@]}"

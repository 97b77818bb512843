#!/usr/bin/env bash
# Which lines of pipedream/ its tests run. usage: tests/pipedream/coverage.sh [least percent, default 95]
# Prints the lines that never run and a table; exit 1 if fewer run than asked for. Needs g++ and gcov, no
# LibTorch.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/../.."
least=${1:-95}
build=build/pipedream_coverage
mkdir -p "$build"
sources=(pipedream/*.cpp pipedream/command/*.cpp common/input/*.cpp)
tests=(tests/pipedream/*_test.cpp tests/pipedream/support.cpp)

compile() {
  local source=$1 flags=-O0 object=$build/${1//\//_}.o
  [[ $source == pipedream/* ]] && flags='-O0 --coverage'
  if [[ -f $object && ! $source -nt $object ]] &&
    [[ -z $(find pipedream tests/pipedream common/input -name '*.h' -newer "$object" -print -quit) ]]; then
    return 0
  fi
  # shellcheck disable=SC2086
  g++ -std=c++20 $flags -I. -c "$source" -o "$object"
}
export -f compile
export build
printf '%s\n' "${sources[@]}" "${tests[@]}" | xargs -n 1 -P "${JOBS:-2}" bash -euc 'compile "$1"' compile
find "$build" -name '*.gcda' -delete
objects=()
for source in "${sources[@]}" "${tests[@]}"; do
  if [[ $source != pipedream/main.cpp ]]; then objects+=("$build/${source//\//_}.o"); fi
done
g++ --coverage -o "$build/tests" "${objects[@]}" -lgtest -lgtest_main -lpthread
g++ --coverage -o "$build/pipedream" "$build"/pipedream_*.o "$build"/common_input_*.o
"$build/tests" --gtest_brief=1
tests/pipedream/process_test.sh "$build/pipedream"

(CDPATH='' cd "$build" && gcov --json-format --stdout pipedream_*.o 2>/dev/null) | python3 -c '
import collections, json, sys
lines = collections.defaultdict(dict)
for text in sys.stdin:
    for f in json.loads(text)["files"] if text.startswith("{") else []:
        if f["file"].startswith("pipedream/"):
            for line in f["lines"]:
                seen = lines[f["file"]]
                seen[line["line_number"]] = seen.get(line["line_number"], 0) + line["count"]
run = total = 0
for name in sorted(lines):
    missed = [n for n, count in sorted(lines[name].items()) if count == 0]
    run, total = run + len(lines[name]) - len(missed), total + len(lines[name])
    share = 100 - 100 * len(missed) / len(lines[name])
    print(f"{name:45} {share:6.1f} %", "never run:" if missed else "", *missed)
print(f"{100 * run / max(1, total):.1f} % of {total} lines")
sys.exit(total == 0 or 100 * run / total < float(sys.argv[1]))
' "$least"

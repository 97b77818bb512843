#!/usr/bin/env bash
# lessons/hunt.sh as a learner calls it, on a hunt of pipedream: hunt_test.sh BUILD_FOLDER. That each story
# shows its symptom: lessons/hunt.sh --prove.
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
[[ -x $1/bin/pipedream ]] || exit 77
export STAGECRAFT_HUNTS=build/hunt_test
rm -rf "$STAGECRAFT_HUNTS"
trap 'rm -rf "$sandbox" "$STAGECRAFT_HUNTS"' EXIT
copy=$STAGECRAFT_HUNTS/pipedream_1
hunt() { run lessons/hunt.sh "$@" --build "$build"; }
build=$1

# names_no_fault TEXT: whether no name of a patch is in it.
names_no_fault() {
  local patch name
  for patch in tests/faults/*.patch; do
    name=${patch##*/}
    name=${name%.patch}
    [[ $1 != *"${name#*_}"* ]] || return 1
  done
}

hunt
check "the list has every lesson" contains "$out" $'\n  12         1 to 8\n  pipedream  1 to 6'
check "and names no fault" names_no_fault "$out"

for words in "13" "12 9" "12 0" "12 1.5" "12 1 2" "12 --wrong" "pipedream --check" \
  "pipedream --hint --reveal"; do
  # shellcheck disable=SC2086  # words
  hunt $words
  check "$words is refused" equal "$code" 64
  check "$words: what, where and the fix" contains "$err" $'\n  fix: lessons/hunt.sh'
  check "$words has one message" equal "$(grep -c '^error: ' <<<"$err")" 1
done
run lessons/hunt.sh 12 --build nowhere
check "a folder without a build is refused" equal "$code $err" \
  $'64 error: nowhere: it is no build folder\n  fix: cmake --preset cpu, or leave out --build'

# On first use nothing is built yet: what is configured says which programs are.
configured=$sandbox/configured
mkdir "$configured"
(cd "$build" && find . -name CTestTestfile.cmake -o -name compile_commands.json | tar c -T -) |
  tar x -C "$configured"
run python3 -B -c 'import sys; sys.path.insert(0, "tests/mutate"); import relink
pair = (relink.Linker(".", folder).entries for folder in sys.argv[1:])
one, other = map(set, pair)
assert one == other > {"pipeline_test", "tensor_test"}, one ^ other' "$build" "$configured"
check "a hunt finds its tests before they are built" equal "$code $err" "0 "

hunt pipedream
check "a hunt begins" equal "$code" 0
check "and shows what goes wrong" contains "$out" "deadlock: stage"
check "on one screen" test "$(wc -l <<<"$out")" -le 20
check "and says where to look" contains "$out" "look in  $copy/pipedream"
check "and names no fault" names_no_fault "$out"
hunt pipedream --check
check "as shipped it is not right" equal "$code" 1
check "and the test says it" contains "$out" \
  "not right yet: pipedream 1: the test Generated.PassTheChecker fails"
said=''
for number in 1 2 3 3; do
  hunt pipedream --hint
  check "hint $number" contains "$out" "hint $number of 3: "
  said+=$out
done
check "hints have no code" test -z "$(tr -cd '{}=' <<<"$said")"

hunt pipedream --reveal
check "the mend says why" contains "$out" "Receives posted only when the value is needed"
python3 -B -c 'import pathlib, sys; sys.path.insert(0, "tests/mutate"); import mutate
mutate.patch(pathlib.Path(sys.argv[1]), sys.argv[2] + "\n")' "$copy" "$out"
check "and is one" cmp -s "$copy/pipedream/messages.cpp" pipedream/messages.cpp
printf '// edited\n' >>"$copy/pipedream/messages.cpp"
hunt pipedream --check
check "mended it is right" equal "$code" 0
check "and says so" contains "$out" "right: pipedream 1: Generated.PassTheChecker passes"
printf 'not C++\n' >>"$copy/pipedream/messages.cpp"
hunt pipedream --check
check "what does not compile is not right" equal "$code" 1
check "and says so" contains "$out" "not right yet: pipedream 1: it does not compile"
finish_test

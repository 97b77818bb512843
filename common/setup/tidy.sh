#!/usr/bin/env bash
# clang-tidy over the files that include no torch. usage: common/setup/tidy.sh [--record | --list] [build folder, default build/single] [files...]
# --list only names them.
# Exits 1 on findings. A file whose preprocessed text, wherever it stands, was clean before is skipped: with the same version of
# clang-tidy and the same settings it would be again. Known from the build folder (tidy/) and from tests/setup/tidy_clean.txt, which
# --record writes when all files are clean; where a system header differs the text does, and the file is checked.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/../.."
record=0 list=0
case ${1:-} in
  --record) record=1 ;;
  --list) list=1 ;;
esac
if ((record || list)); then shift; fi
build=${1:-build/single}
shift || true
patterns=(common/input/*.cpp common/base/*.cpp common/config/*.cpp common/watch/*.cpp
  common/memory/plan*.cpp common/model/{param_layout,activation_plan,part_plan,hf_names}*.cpp
  common/data/{prose,sampler,token_file,tokenizer,bpe_tokenizer}*.cpp common/data/{bpe,prepare}/*.cpp
  common/storage/*.cpp common/storage/checkpoint/*.cpp common/storage/checkpoint/command/*.cpp common/records/*.cpp pipedream/*.cpp pipedream/command/*.cpp)
files=("$@")
if [[ $# -eq 0 ]]; then
  for file in "${patterns[@]}"; do [[ -f $file ]] && files+=("$file"); done
fi
if ((list)); then
  printf '%s\n' "${files[@]}"
  exit 0
fi

if [[ ! -f $build/compile_commands.json ]]; then
  echo "error: $build/compile_commands.json: not there" >&2
  echo "  fix: cmake --preset single" >&2
  exit 69
fi
# Debian 12's version, also where the unversioned name is a newer one: its findings are those of CI.
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) ||
  { echo "error: clang-tidy is missing"$'\n'"  fix: common/setup/setup.sh --dev" >&2; exit 69; }

mkdir -p "$build/tidy"
: >"$build/tidy_keys"
# One line a file: the file, a tab, its compile command. A file that no target builds would be checked with guessed flags: an error.
commands=$(python3 - "$build/compile_commands.json" "${files[@]}" <<'PY'
import json, os, re, sys
entries = {os.path.relpath(e["file"]): e for e in json.load(open(sys.argv[1]))}
for name in sys.argv[2:]:
    if name not in entries:
        sys.exit(f"error: {name}: no target builds it\n  fix: name it in its room's CMakeLists.txt, or run cmake again")
    print(name, re.sub(r" -o \S+| -c\b", "", entries[name]["command"]), sep="\t")
PY
)

check() {
  local file=${1%%$'\t'*} command=${1#*$'\t'} key
  # With its macros and includes, which have checks of their own. -P, and no path of this repository: neither a file that was moved nor
  # another clone changes the text; nor, in what the tool says of its version, this machine's processor.
  key=$({ "$tidy" --version | grep -i version; cat .clang-tidy; eval "$command -E -C -P -dD -dI" | sed "s|$PWD/||g; s|$PWD||g"; } | sha256sum | cut -c1-64)
  echo "$key" >>"$build/tidy_keys"
  if [[ -f $build/tidy/$key ]] || grep -qxF "$key" tests/setup/tidy_clean.txt 2>/dev/null; then return 0; fi
  if "$tidy" -p "$build" --quiet "$file" 2> >(grep -vE "warnings? (generated|treated)|^Suppressed|^$" >&2); then
    touch "$build/tidy/$key"
  else
    echo "tidy: $file" >&2
    return 1
  fi
}
export -f check
export build tidy
# shellcheck disable=SC2016  # xargs's bash expands it
if printf '%s\n' "$commands" | xargs -d '\n' -n 1 -P "${JOBS:-2}" bash -c 'check "$1"' check; then
  known=$(grep -cxFf tests/setup/tidy_clean.txt "$build/tidy_keys" || true)  # few of them: the record is old, and CI pays for it
  echo "tidy: ${#files[@]} files clean, $known known from the record"
  if ((record)); then sort -u "$build/tidy_keys" >tests/setup/tidy_clean.txt; fi
else
  echo "tidy: findings above" >&2
  exit 1
fi

#!/usr/bin/env bash
# clang-tidy over the files that include no torch. usage: common/setup/tidy.sh [--list | --all] [build folder,
# default build/single] [files...] Without files those that differ from what the last soak found clean
# (tests/setup/soaked.txt), with --all every one; --list only names them all. Exits 1 on findings.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/../.."
list=0 all=0
case ${1:-} in
  --list) list=1 ;;
  --all) all=1 ;;
esac
if ((list || all)); then shift; fi
build=${1:-build/single}
shift || true
patterns=(common/input/*.cpp common/base/*.cpp common/config/*.cpp common/watch/*.cpp
  common/model/{param_layout,activation_plan,part_plan,hf_names}*.cpp
  common/data/{prose,sampler,token_file,tokenizer,bpe_tokenizer}*.cpp common/data/{bpe,prepare}/*.cpp
  common/storage/*.cpp common/storage/checkpoint/*.cpp common/storage/checkpoint/command/*.cpp
  common/records/*.cpp pipedream/*.cpp pipedream/command/*.cpp)
files=("$@")
if [[ $# -eq 0 ]]; then
  for file in "${patterns[@]}"; do [[ -f $file ]] && files+=("$file"); done
fi
if ((list)); then
  printf '%s\n' "${files[@]}"
  exit 0
fi

if [[ $# -eq 0 ]] && ((all == 0)); then
  mapfile -t files < <(python3 -B tests/setup/tiers.py changed file "${files[@]}" | grep .)
  if ((${#files[@]} == 0)); then echo "tidy: no file changed since the last soak" && exit 0; fi
fi
if [[ ! -f $build/compile_commands.json ]]; then
  echo "error: $build/compile_commands.json: not there" >&2
  echo "  fix: cmake --preset single" >&2
  exit 69
fi
# Debian 12's clang-tidy is preferred over a newer one, so that findings are those of CI.
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) ||
  { echo "error: clang-tidy is missing"$'\n'"  fix: common/setup/setup.sh --dev" >&2; exit 69; }

# clang-tidy would check a file that no target builds with guessed flags, so such a file is an error.
python3 - "$build/compile_commands.json" "${files[@]}" <<'PY'
import json, os, sys
entries = {os.path.relpath(e["file"]) for e in json.load(open(sys.argv[1]))}
for name in sys.argv[2:]:
    if name not in entries:
        fix = "name it in its room's CMakeLists.txt, or run cmake again"
        sys.exit(f"error: {name}: no target builds it\n  fix: {fix}")
PY

check() {
  "$tidy" -p "$build" --quiet "$1" 2> >(grep -vE "warnings? (generated|treated)|^Suppressed|^$" >&2) ||
    { echo "tidy: $1" >&2 && return 1; }
}
export -f check
export build tidy
# shellcheck disable=SC2016  # xargs's bash expands it
printf '%s\n' "${files[@]}" | xargs -d '\n' -n 1 -P "${JOBS:-2}" bash -c 'check "$1"' check ||
  { echo "tidy: findings above" >&2 && exit 1; }
echo "tidy: ${#files[@]} files clean"

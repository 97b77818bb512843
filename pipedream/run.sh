#!/usr/bin/env bash
# Builds the command `pipedream` when its sources have changed, and runs it. Needs a C++20 compiler,
# nlohmann-json and cxxopts, nothing else of the project: no LibTorch, no MPI, no GPU.
#   usage  pipedream/run.sh simulate --schedule gpipe        (pipedream/run.sh --help)
#   exit   the command's; 69 if the compiler or a header is missing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"
build=$root/build/pipedream_command
program=$build/pipedream
compiler=$(compiler)

# compile SOURCE: compiles one source to an object, only if the source or any header is newer.
compile() {
  local source=$1 object
  object=$build/${source//\//_}.o
  if [[ -f $object && ! $source -nt $object ]] &&
    [[ -z $(find pipedream common/input -name '*.h' -newer "$object" -print -quit) ]]; then
    return 0
  fi
  $compiler -std=c++20 -O2 -DCXXOPTS_NO_REGEX -I. -c "$source" -o "$object.new"
  mv "$object.new" "$object"
}

up_to_date() {
  [[ -x $program ]] &&
    [[ -z $(find pipedream common/input \( -name '*.h' -o -name '*.cpp' \) -newer "$program" -print -quit) ]]
}

build_program() {
  cd "$root"
  if [[ -x $program && ! -w $build ]]; then
    echo "$root is not yours to write: what was built there last is taken as it is" >&2
    return 0
  fi
  mkdir -p "$build"
  exec 9>"$build/lock"
  flock 9 || true  # without locks two may build at the same time
  if up_to_date; then return 0; fi
  # shellcheck disable=SC2086  # CXX may hold flags too
  have $compiler || die "$exit_missing" "$compiler" "is missing" "apt-get install g++"
  printf '#include <cxxopts.hpp>\n#include <nlohmann/json.hpp>\n' |
    $compiler -std=c++20 -E -x c++ - >/dev/null 2>&1 ||
    die "$exit_missing" "$compiler" "does not find cxxopts or nlohmann-json" \
    "apt-get install libcxxopts-dev nlohmann-json3-dev"
  echo "building the command pipedream (once, about a minute)" >&2
  export -f compile
  export build compiler
  printf '%s\n' common/input/*.cpp pipedream/*.cpp pipedream/command/*.cpp |
    xargs -n 1 -P "$(nproc)" bash -euc 'compile "$1"' compile
  $compiler -o "$program.new" "$build"/*.o
  mv "$program.new" "$program"
}

for program in "$root/build/cpu/bin/pipedream" "$program"; do  # a program built by CMake serves as well
  if (cd "$root" && up_to_date); then exec "$program" "$@"; fi
done
(build_program)
exec "$program" "$@"

# shellcheck shell=bash disable=SC2034
# A copy of common/setup in a repository of its own, a PATH of our own choice, and assertions. Sourced by the
# tests of this folder.
set -euo pipefail
here=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
sandbox=$(mktemp -d)
trap 'rm -rf "$sandbox"' EXIT
repo=$sandbox/repo
shims=$sandbox/shims
mkdir -p "$repo/common" "$repo/lessons/99_fake" "$repo/build/cpu/bin" "$shims"
cp -r "$here/../../common/setup" "$repo/common/setup"
unset OMP_NUM_THREADS LIBTORCH_ROOT STAGECRAFT_PRESET CUDACXX CUDA_VISIBLE_DEVICES ENVIRONMENT
for name in $(compgen -e | grep -E '^(SLURM|NCCL|OMPI_MCA|PMIX)_' || true); do unset "$name"; done

failures=0 checks=0

# check WHAT CONDITION...: notes a failure and goes on.
check() {
  local what=$1
  shift
  checks=$((checks + 1))
  if "$@"; then return 0; fi
  failures=$((failures + 1))
  printf 'FAILED: %s\n' "$what"
}

equal() {
  [[ $1 == "$2" ]] || {
    printf '  expected: %q\n  found:    %q\n' "$2" "$1"
    return 1
  }
}

contains() {
  [[ $1 == *"$2"* ]] || {
    printf '  expected in it: %q\n  found: %s\n' "$2" "$1"
    return 1
  }
}

# run COMMAND...: sets `code`, `out` (standard output) and `err`.
run() {
  code=0
  { "$@" >"$sandbox/out" 2>"$sandbox/err" </dev/null; } 2>/dev/null || code=$?
  out=$(<"$sandbox/out")
  err=$(<"$sandbox/err")
}

# shim NAME <<'E': an executable on the PATH of the sandbox.
shim() {
  rm -f "${shims:?}/$1"  # it may be a link to the system's tool, which must not be written through
  { printf '#!%s\n' "$(command -v bash)"; cat; } >"$shims/$1"
  chmod +x "$shims/$1"
}

# basic_tools: gives the sandbox the small tools that scripts use, and none that setup.sh installs.
basic_tools() {
  local tool
  for tool in awk bash cat chmod cp cut df dirname env find flock grep head ln mkdir mktemp mv nproc printf \
    rm sed setpriv sh sha256sum sleep sort tail timeout touch tr uname; do
    ln -sf "$(command -v "$tool")" "$shims/$tool"
  done
}

# on_its_own FOLDER: its setup.sh sees no Python and no g++ of this machine beside those on PATH.
on_its_own() {
  sed -i "s#/usr/bin/python3#$sandbox/no-python3#; s#/usr/bin/g++#$sandbox/system/g++#" \
    "$1"/common/setup/{setup,lib}.sh
}

finish_test() {
  printf '%d checks, %d failed\n' "$checks" "$failures"
  ((failures == 0))
}

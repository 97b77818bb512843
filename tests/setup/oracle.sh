# shellcheck shell=bash
# Sourced by tests that need Python packages of setup.sh --oracle.

# has_oracle MODULES: sets `python` to the oracle's; returns 1 if it lacks one of MODULES.
has_oracle() {
  python=.deps/oracle/bin/python
  "$python" -c "import $1" 2>/dev/null
}

# own_folder: sets `folder` to a new empty folder that is removed when the test ends.
own_folder() {
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
}

# oracle MODULES: sets `python` and `folder`, or skips the test with exit code 77 if a module is missing.
oracle() {
  if ! has_oracle "$1"; then
    echo "skipped: $python lacks one of $1 (common/setup/setup.sh --oracle installs them)"
    exit 77
  fi
  own_folder
}

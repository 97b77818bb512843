# shellcheck shell=bash
# Sourced by tests that need Python packages of setup.sh --oracle.

# has_oracle MODULES: sets `python`; 1: it lacks one of them.
has_oracle() {
  python=.deps/oracle/bin/python
  "$python" -c "import $1" 2>/dev/null
}

# own_folder: sets `folder`, an empty one that goes with the test.
own_folder() {
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
}

# oracle MODULES: sets both. Exit 77 where the modules are missing.
oracle() {
  if ! has_oracle "$1"; then
    echo "skipped: $python lacks one of $1 (common/setup/setup.sh --oracle installs them)"
    exit 77
  fi
  own_folder
}

# shellcheck shell=bash
# Sourced by tests that need Python packages of setup.sh --oracle.

# oracle MODULES: sets `python`, which has them, and `folder`, an empty one that goes with the test. Exit 77 where it has not.
oracle() {
  python=.deps/oracle/bin/python
  if ! "$python" -c "import $1" 2>/dev/null; then
    echo "skipped: $python lacks one of $1 (common/setup/setup.sh --oracle installs them)"
    exit 77
  fi
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
}

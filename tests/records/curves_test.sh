#!/usr/bin/env bash
# Event files, read back by the tensorboard package. usage: curves_test.sh BUILD. Exit 77: the package is not
# installed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/lib.sh"
if ! complete curves; then
  say "skipped: .deps/curves is not installed (common/setup/setup.sh --curves)"
  exit 77
fi
exec "$deps/curves/bin/python" -B "$root/tests/records/curves_test.py" "$1/bin"

#!/usr/bin/env bash
# Installs what `prepare` needs for parquet files, and nothing else does: pyarrow (48 MB to fetch, 150 MB on
# disk) in the private environment .deps/prepare. Idempotent; run again after an interruption. setup.sh --dev
# calls it, since a test reads a parquet file; PYTHON names the interpreter (python3).
# Exit codes: 0, 69 (python3, its pip or the network is missing).
set -euo pipefail
here=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../setup/lib.sh"

if "$deps/prepare/bin/python" -c 'import pyarrow' 2>/dev/null; then
  say "pyarrow is installed: $deps/prepare"
  exit 0
fi
"$root/common/setup/venv.sh" prepare pyarrow "$here/requirements-parquet.txt" "3.10 to 3.14"

#!/usr/bin/env bash
# Installs what `prepare` needs for parquet files, and nothing else does: pyarrow (43 MB to fetch, 170 MB on disk) in the
# private environment .deps/prepare. Idempotent; run again after an interruption.
# Exit codes: 0, 69 (python3, its venv module or the network is missing).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$(cd "$here/../../.." && pwd)/.deps/prepare

if "$venv/bin/python" -c 'import pyarrow' 2> /dev/null; then
  echo "pyarrow is installed: $venv"
  exit 0
fi
if ! log=$(python3 -m venv --clear "$venv" 2>&1); then
  echo "error: python3 -m venv: $(head -n 1 <<< "$log")" >&2
  echo "  fix: apt-get install python3 python3-venv, then run this again" >&2
  exit 69
fi
if ! log=$("$venv/bin/python" -m pip install --quiet --only-binary :all: --require-hashes -r "$here/requirements-parquet.txt" 2>&1); then
  echo "error: pip install pyarrow: $(tail -n 1 <<< "$log")" >&2
  echo "  fix: allow access to PyPI and use Python 3.11 to 3.13, then run this again" >&2
  exit 69
fi
echo "pyarrow is installed: $venv"

#!/usr/bin/env bash
# Installs what `prepare` needs for parquet files, and nothing else does: pyarrow (48 MB to fetch, 150 MB on disk) in the
# private environment .deps/prepare. Idempotent; run again after an interruption. setup.sh --dev calls it, since a test reads
# a parquet file; PYTHON names the interpreter (python3).
# Exit codes: 0, 69 (python3, its pip or the network is missing).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$(cd "$here/../../.." && pwd)/.deps/prepare
python=${PYTHON:-python3}

if "$venv/bin/python" -c 'import pyarrow' 2> /dev/null; then
  echo "pyarrow is installed: $venv"
  exit 0
fi
# Without a pip of its own: Debian's python3 makes one only with python3-venv.
if ! output=$("$python" -m venv --clear --without-pip "$venv" 2>&1); then
  echo "error: $python -m venv: $(head -n 1 <<< "$output")" >&2
  echo "  fix: apt-get install python3 python3-pip, then run this again" >&2
  exit 69
fi
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if ! output=$(PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
  "$python" -m pip install --quiet --no-compile --only-binary :all: --no-deps --require-hashes \
  -r "$here/requirements-parquet.txt" --target "$packages" 2>&1); then
  echo "error: pip install pyarrow: $(tail -n 1 <<< "$output")" >&2
  echo "  fix: allow access to PyPI and use Python 3.10 to 3.14 with pip, then run this again" >&2
  exit 69
fi
echo "pyarrow is installed: $venv"

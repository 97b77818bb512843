#!/usr/bin/env bash
# Checkpoints and their export, opened by Python's safetensors. usage: checkpoint_python_test.sh BUILD. Exit 77: not installed.
set -euo pipefail
python=.deps/oracle/bin/python
if ! "$python" -c 'import numpy, safetensors' 2>/dev/null; then
  echo "skipped: $python has no safetensors (common/setup/setup.sh --oracle installs it)"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
STAGECRAFT_KEEP_CHECKPOINT=$folder "$1/tests/storage/storage_checkpoint_test" --gtest_filter='Checkpoints.KeptForPython' --gtest_brief=1
"$1/bin/checkpoint" export "$folder" "$folder/out.safetensors"
"$python" -B tests/storage/checkpoint_python_test.py "$folder"

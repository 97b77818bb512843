#!/usr/bin/env bash
# Checkpoints and their export, opened by Python's safetensors. usage: checkpoint_python_test.sh BUILD. Exit
# 77: not installed.
set -euo pipefail
source tests/setup/oracle.sh
oracle 'numpy, safetensors'
STAGECRAFT_KEEP_CHECKPOINT=$folder "$1/tests/storage/storage_tests" \
  --gtest_filter='Checkpoints.KeptForPython' --gtest_brief=1
"$1/bin/checkpoint" export "$folder" "$folder/out.safetensors"
"$python" -B tests/storage/checkpoint_python_test.py "$folder"

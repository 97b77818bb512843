#!/usr/bin/env bash
# The path of docs/real_models.md with a model and a text made on the spot. usage: real_models_test.sh BUILD. Exit 77: transformers is missing.
set -euo pipefail
source tests/setup/oracle.sh
oracle 'torch, transformers, safetensors, tiktoken'
"$python" -B tests/model/real_models_test.py "$1/bin" "$folder"

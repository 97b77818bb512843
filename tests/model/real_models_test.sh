#!/usr/bin/env bash
# The path of docs/real_models.md with a model and a text made on the spot. usage: real_models_test.sh BUILD. Exit 77: all but what needs
# transformers has passed, and that is missing.
set -euo pipefail
python=.deps/oracle/bin/python
"$python" -c 'import torch, transformers' 2>/dev/null || python=python3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -B tests/model/real_models_test.py "$1/bin" "$folder"

#!/usr/bin/env bash
# The path of docs/real_models.md with a model and a text made on the spot. usage: real_models_test.sh BUILD.
# Exit 77: all but what needs transformers has passed, and that is missing.
set -euo pipefail
source tests/setup/oracle.sh
has_oracle 'torch, transformers' || python=python3
own_folder
"$python" -B tests/model/real_models_test.py "$1/bin" "$folder"

#!/usr/bin/env bash
# lessons/real_model.sh with a tiny model and a hub on 127.0.0.1. usage: real_model_command_test.sh BUILD.
# Exit 77: a package is missing.
set -euo pipefail
source tests/setup/oracle.sh
oracle huggingface_hub
pyarrow=.deps/prepare/bin/python
"$pyarrow" -c 'import pyarrow' 2>/dev/null || {
  echo "skipped: $pyarrow lacks pyarrow (common/setup/setup.sh --dev installs it)"
  exit 77
}
"$python" -B tests/model/real_model_command_test.py "$1/bin" "$folder" "$PWD/$pyarrow"

#!/usr/bin/env bash
# Stagecraft and its peers side by side on this machine's GPUs; what it takes: tests/benchmarks/gpu.sh --help
# Needs build/cuda (lessons/NN/run.sh --preset cuda --build-only of lessons 00 to 04, for pipelines 07, for
# tensor 10, for offload 05; or --bin) and a python3 with PyTorch (PYTHON=...).
set -euo pipefail
here=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
script=gpu.py
if [[ ${1:-} == --dtype-only ]]; then
  script=dtype_only.py
  shift
fi
for argument in "$@"; do
  case $argument in
    -h | --help | --render | --render=*) exec "${PYTHON:-python3}" "$here/$script" "$@" ;;
  esac
done
if [[ $(nvidia-smi --list-gpus 2>/dev/null) != *GPU* ]]; then
  echo "error: no GPU is visible: nvidia-smi lists none" >&2
  echo "  fix: run it on a machine with an NVIDIA GPU; a result is shown anywhere:" \
    "$0 --render docs/results/gpu_peers.json" >&2
  exit 69
fi
python=${PYTHON:-}
[[ $script == gpu.py ]] || python=${python:-python3} # lesson 00 alone: no peers
for candidate in python3 "$here/../../.deps/oracle/bin/python"; do
  if [[ -z $python ]] && "$candidate" -c 'import torch' 2>/dev/null; then python=$candidate; fi
done
if [[ -z $python ]]; then
  echo "error: no python3 with PyTorch" >&2
  echo "  fix: common/setup/setup.sh --oracle, or PYTHON=/path/to/python3; without peers:" \
    "PYTHON=python3 and --peers none" >&2
  exit 69
fi
# torch's compiled kernels are kept here, outside the run's folder, for the next run.
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/stagecraft_inductor} \
  TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-/tmp/stagecraft_triton}
export TORCH_EXTENSIONS_DIR=${TORCH_EXTENSIONS_DIR:-/tmp/stagecraft_extensions} # DeepSpeed's operations
exec "$python" "$here/$script" "$@"

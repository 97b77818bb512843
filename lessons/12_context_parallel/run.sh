#!/usr/bin/env bash
# Sets up and builds on first use, then trains. ./run.sh --help lists everything it takes.
exec "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/launch.sh" 12_context_parallel --default-ranks 2 \
  --default-workload configs/tiny_long.json "$@"

#!/usr/bin/env bash
# Sets up and builds on first use, then trains. ./run.sh --help lists everything it takes.
exec "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/launch.sh" 11_combined --default-ranks 4 \
  --default-workload configs/tiny_rows.json "$@"

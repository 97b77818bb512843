#!/usr/bin/env bash
# Sets up and builds on first use, then trains. ./run.sh --help lists everything it takes.
exec "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/launch.sh" 06_infinity --default-ranks 2 "$@"

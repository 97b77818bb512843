#!/usr/bin/env bash
# Runs the lessons on the default workload, one after the other on four CPU ranks, and puts them side by side:
# bytes held in each place, bytes moved in a step, and whose bits the trained weights are. Sets up and builds
# on first use.
#   usage  lessons/all.sh [LESSON...] [--steps N] [--no-build]
#     LESSON      a lesson's number, 00 to 11; default: all
#     --steps     of each run, 2 at least; default 3
#     --no-build  runs what was built before
#   exit   0; 64 usage; 69 python3 is missing; 70 a run is not as predicted, or ends in other bits than lesson
#          00 in its order of sums; of a run that fails its own code
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"

cd "$root"
python_program "$root/lessons/all.sh" common/records/curves/side_by_side.py "$@"

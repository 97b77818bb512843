#!/usr/bin/env bash
# Hunts: copies the sources with a fault in them to build/hunt, builds what differs, and shows a run or a test
# that goes wrong. You find the fault in the copy and mend it there. `rm -r build/hunt/NAME` begins anew.
#   usage  lessons/hunt.sh [LESSON [NUMBER]] [--check | --hint | --reveal] [--build DIR]
#     LESSON NUMBER  00 to 12, or pipedream, and which of its hunts; without LESSON: how many each has. 1, the
#                    default, is a run of the lesson, others are tests. Later it shows how your copy fares
#     --check        builds the copy and says whether it is right
#     --hint         the next of three hints
#     --reveal       why it goes wrong, and the mend
#     --build DIR    a build folder of the cpu preset, up to date; default build/cpu, set up on first use
#     --prove        for tests: the first hunt (of LESSON, or of all) shows its symptom, and none without the
#                    fault. --changed: only where a file has changed since the last soak; --record notes it
#   exit   0; 1 --check: not right; 64 usage; 69 something is missing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
python_program "${BASH_SOURCE[0]}" tests/mutate/hunt.py "$@"

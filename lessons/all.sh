#!/usr/bin/env bash
# Runs the lessons on the default workload, one after the other on four CPU ranks, and puts them side by side: bytes held in each place,
# bytes moved in a step, and whose bits the trained weights are. Sets up and builds on first use.
#   usage  lessons/all.sh [LESSON...] [--steps N] [--no-build]
#     LESSON      a lesson's number, 00 to 11; default: all
#     --steps     of each run, 2 at least; default 3
#     --no-build  runs what was built before
#   exit   0; 64 usage; 69 python3 is missing; 70 a run is not as predicted, or ends in other bits than lesson 00 in its order of sums;
#          of a run that fails its own code
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"

for argument in "$@"; do
  case $argument in
    -h | --help)
      print_header "${BASH_SOURCE[0]}"
      exit 0
      ;;
  esac
done
have python3 || die "$exit_missing" "python3" "is not installed" "apt-get install python3"
cd "$root"
exec python3 -B "$root/common/records/curves/side_by_side.py" "$@"

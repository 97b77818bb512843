#!/usr/bin/env bash
# Which lessons fit on a machine, and what a step would take. Sets up and builds on first use, which takes
# minutes.
#   usage  lessons/choose.sh --gpus 8 --gpu RTX4090 --link 25GB/s --host-memory 512GB --disk 4GB/s
#          [--no-build] [--help]
#     --no-build    runs what was built before
#   exit   64 command line; 69 nothing fits, or a build failed
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"
cd "$root"
program=build/cpu/bin/choose do_build=1
arguments=()
for argument in "$@"; do
  if [[ $argument == --no-build ]]; then do_build=0; else arguments+=("$argument"); fi
done
if [[ " ${arguments[*]} " == *" --help "* ]]; then
  if [[ ! -x $program ]]; then
    print_header "$root/lessons/choose.sh"
    exit 0
  fi
  do_build=0
fi
if ((do_build)); then
  common/setup/setup.sh --quiet
  made cpu "building choose with $(jobs_for_build) compilers at once" choose >&2
fi
[[ -x $program ]] || die "$exit_missing" "$program" "is not built" "leave out --no-build"
exec "$program" "${arguments[@]}"

#!/usr/bin/env bash
# Writes the curves of a run (loss, validation loss, learning rate, gradient norm, tokens per second, seconds
# per step) as an event file for TensorBoard, or into an offline Weights & Biases run; while the run goes on,
# or afterwards.
#   usage  lessons/curves.sh RUN [--tensorboard DIR] [--wandb DIR] [--follow [--patience SECONDS]]
#     RUN            the folder of a run, or its record.json
#     --tensorboard  the event file goes to DIR/<lesson>/<folder of the run>; default: into the run's own
#                    folder, so that `--logdir runs` shows all. An event file of an earlier call is replaced
#     --wandb        an offline run goes to DIR/wandb; then no event file is written unless --tensorboard asks
#                    for it. Needs the package wandb
#     --follow       goes on until the run ends, and writes each step as it comes
#     --patience     with --follow: gives up after so many seconds without a step where no process of this
#                    machine writes the run; default 600
#   exit   0; 64 usage; 65 RUN is no run, or is damaged; 69 a package is missing and could not be installed;
#          73 DIR cannot be written; 130 interrupted
# The first use installs the tensorboard package into .deps/curves (40 MB to download).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"

if (($# == 0)); then die "$exit_usage" "lessons/curves.sh" "RUN is missing" "lessons/curves.sh --help"; fi
tensorboard=0 wandb=0
for argument in "$@"; do
  case $argument in
    -h | --help)
      print_header "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --tensorboard | --tensorboard=*) tensorboard=1 ;;
    --wandb | --wandb=*) wandb=1 ;;
  esac
done

install() {
  if complete curves; then return 0; fi # another call did it while this one waited
  say "first use: installing tensorboard into .deps/curves, 40 MB to download"
  "$root/common/setup/venv.sh" curves tensorboard "$root/common/setup/requirements-curves.txt" "3.11 to 3.14"
}

python=python3
if ((tensorboard || !wandb)); then
  complete curves || locked setup install
  python=$deps/curves/bin/python
fi
have "$python" || die "$exit_missing" "python3" "is not installed" "apt-get install python3"
exec "$python" -B "$root/common/records/curves/curves.py" "$@"

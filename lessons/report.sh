#!/usr/bin/env bash
# Puts runs side by side: tokens per second, peak bytes by purpose and place, bytes sent, losses; and draws
# their loss over tokens.
# Bytes are those of the rank that holds most, and of the rank that moves most.
#   usage  lessons/report.sh RUN... [--svg FILE] [--across KEY[,KEY...]] [--pages]
#          lessons/report.sh RUN... --scaling [--across KEY[,KEY...]]
#     RUN       the folder of a run, or its record.json; of a run that goes on, or was killed, what it has
#               written
#     --svg     the figure; default: loss.svg next to the first run's record
#     --pages   page.html beside the record of each run that left none (of before runs wrote it, or --page
#               off): without the clock
#     --across  keys of the workload in which the runs may differ; runs that differ in another one are
#               refused, and so are those with a --validation or --test of another text, unless --across names
#               `validation` or `test`
#     --scaling speed-up and efficiency over ranks, next to the run with the fewest: of one lesson with one
#               workload and the same keys on the same device, unless --across names what differs (`lesson`,
#               `batch.global`, `mesh`)
#   exit   0; 64 usage, or runs of different workloads; 65 a RUN is no run, or is damaged; 69 python3 is
#          missing; 73 the figure or the output cannot be written
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"

python_program "${BASH_SOURCE[0]}" common/records/curves/report.py "$@"

#!/usr/bin/env bash
# lessons/choose.sh as a user calls it: choose_test.sh BUILD_FOLDER
set -euo pipefail
[[ -x $1/bin/choose && $(cd "$1" && pwd -P) == "$PWD/build/cpu" ]] || exit 77 # the script runs the cpu preset's
help=$(lessons/choose.sh --help)
[[ $help == *--host-memory*"docs/choosing.md"* ]]
said=$(lessons/choose.sh --no-build --gpus 8 --memory 24GB --link 25GB/s --host-memory 512GB --disk 4GB/s)
[[ $said == *"lesson 04_zero3"*"does not fit:"*"08_weight_versions"*"advice: lesson "*"run.sh -n 8 "* ]]
for bad in "--gpus 0" "--gpus 8 --memory 24" "--gpus 8 --gpu H20" "--gpus 8 --link 25GB" "--gpus 8 --set batch.micro=4"; do
  status=0
  # shellcheck disable=SC2086  # words
  message=$(lessons/choose.sh --no-build $bad 2>&1) || status=$?
  [[ $status == 64 && $(wc -l <<<"$message") == 2 && $message == "error: --"*"fix: "* ]] || {
    echo "$bad: exit $status, $message"
    exit 1
  }
done
status=0
message=$(lessons/choose.sh --no-build --gpus 1 --memory 1GB 2>&1) || status=$?
[[ $status == 69 && $message == *"does not fit:"*"error: "*"fix: --memory "* ]]

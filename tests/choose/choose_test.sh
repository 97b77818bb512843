#!/usr/bin/env bash
# lessons/choose.sh as a user calls it: choose_test.sh BUILD_FOLDER
set -euo pipefail
# The script runs the program of the cpu preset, so only that build can be tested.
[[ -x $1/bin/choose && $(CDPATH='' cd "$1" && pwd -P) == "$PWD/build/cpu" ]] || exit 77
help=$(lessons/choose.sh --help)
[[ $help == *--host-memory*"docs/choosing.md"* ]]
said=$(lessons/choose.sh --no-build --gpus 8 --memory 24GB --link 25GB/s --host-memory 512GB --disk 4GB/s)
[[ $said == *"lesson 04_zero3"*"does not fit:"*"08_weight_versions"*"advice: lesson "* ]]
[[ $said == *"advice: lesson "*"run.sh -n 8 --device cuda "* ]]
[[ $said == *"GPU with the rates of H200"*"seconds are estimated with an H200's rates"* ]]
# The help's example names its GPU. The advice is a command whose run must hold what the table says.
example=$(sed -n 's|^  \(lessons/choose.sh --gpus .*\)|\1|p' <<<"$help")
said=$($example --no-build)
[[ $said == *"8 x RTX4090 ("*"seconds are estimated: shares"*"; no lesson has been run on this GPU"* ]]
said=$(lessons/choose.sh --no-build --gpus 8 --gpu H100)
[[ $said == *"seconds are estimated: shares"* && $said != *"no lesson has been run"* ]]
said=$(lessons/choose.sh --gpus 1 --gpu RTX4090 --host-memory 8GB --no-build --disk 4GB/s \
  --workload configs/gpt2_1558m.json)
advised=$(sed -n 's|^  \(lessons/06_infinity/run.sh .*\)|\1|p' <<<"$said")
[[ $advised == *" --device cuda "*" --disk DIR "* ]]
held=$($advised --plan --preset cpu --no-build | sed -n 's|^  total  *\([0-9.]* GB\) .*|\1|p')
[[ -n $held ]]
total=$(awk -v held="${held% GB}" 'BEGIN {printf "%.2f", held + 1}') # 1 GB for the driver and libraries
grep -q "^  lesson 06_infinity.* ${total/./\\.} " <<<"$said"
for bad in "--gpus 0" "--gpus 8 --memory 24" "--gpus 8 --gpu H20" "--gpus 8 --link 25GB" \
  "--gpus 8 --set batch.micro=4"; do
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

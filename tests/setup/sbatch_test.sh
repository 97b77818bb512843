#!/usr/bin/env bash
# The batch scripts of docs/cluster.md and lessons/gpus.sbatch without a Slurm: their syntax, what they ask
# for, and the command line that they would run. tests/processes/slurm_test.py runs those of one node where
# Slurm is installed.
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

cd "$here/../.."
shim id <<<'echo 1000'
PATH=$shims:$PATH
awk -v out="$sandbox/page" \
  '/^#!\/bin\/bash$/ {inside = 1; n++} /^```/ {inside = 0} inside {print > (out n ".sbatch")}' docs/cluster.md
check "the page has two scripts" equal "$(cd "$sandbox" && echo page*.sbatch)" "page1.sbatch page2.sbatch"

# asked SCRIPT OPTION: the option's value in the #SBATCH lines, of which sbatch reads none after the first
# command.
asked() {
  awk -v option="--$2" '
    !/^#/ {exit}
    /^#SBATCH/ {
      for (i = 2; i <= NF; i++) {
        split($i, word, "=")
        if (word[1] == option) print substr($i, length(option) + 2)
      }
    }' "$1"
}

for script in "$sandbox"/page*.sbatch lessons/gpus.sbatch; do
  run bash -n "$script"
  check "$script: bash can read it" equal "$code$err" 0
  check "$script: #SBATCH lines come first" equal "$(grep -c '^#SBATCH' "$script")" \
    "$(sed '/^[^#]/,$d' "$script" | grep -c '^#SBATCH')"
  for option in job-name nodes ntasks-per-node time output; do
    check "$script: --$option" test -n "$(asked "$script" "$option")"
  done
  lesson=() saves=()
  if grep -q -e --save-every "$script"; then saves=(--save-every 100 --checkpoints runs/checkpoints-1); fi
  if [[ $script == lessons/* ]]; then lesson=(04_zero3); fi
  run env SLURM_NTASKS=2 SLURM_JOB_ID=1 STAGECRAFT_PRESET=cpu bash "$script" "${lesson[@]}" --dry-run \
    --steps 50
  preset=cpu
  if [[ $script == lessons/* ]]; then preset=cuda; fi
  check "$script: as many ranks as tasks" contains "$out" " -n 2 "
  check "$script: the program and its flags" contains "$out" " build/$preset/bin/04_zero3 "
  check "$script: the flags, and nothing else" contains "$out|" \
    "config.json${saves[*]:+ ${saves[*]}} --steps 50|"
  check "$script: no error" equal "$code$err" 0
done

check "a GPU per task" equal "$(asked lessons/gpus.sbatch gpus-per-node)" \
  "$(asked lessons/gpus.sbatch ntasks-per-node)"
check "no --gpus-per-task: each rank would see its GPU as number 0" equal \
  "$(asked lessons/gpus.sbatch gpus-per-task)" ""
for wrong in '' 04_zero /; do
  run env SLURM_NTASKS=2 bash lessons/gpus.sbatch $wrong
  check "no lesson: '$wrong'" equal "$code $err" "64 error: gpus.sbatch: '$wrong' is no LESSON in $PWD/lessons
  fix: from the repository, sbatch lessons/gpus.sbatch 04_zero3"
done
finish_test

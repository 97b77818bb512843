#!/usr/bin/env bash
# launch.sh --max-restarts and --min-ranks: after which ends it starts again, with which arguments, and when
# it stops. The program and mpirun are stand-ins; tests/processes/checkpoint_test.py has the real ones.
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

cd "$sandbox"
launch() { run "$repo/common/setup/launch.sh" 99_fake --no-build "$@"; }
# A fake program: attempt i saves step SAVED_i, does the steps FROM_i to DONE_i, and ends as END_i says. It
# accepts 3 ranks or 1. The clock of its file server is an hour behind.
shim mpirun.openmpi <<'EOF'
while [[ $1 != */99_fake ]]; do
  [[ $1 != -n ]] || export RANKS=$2
  shift
done
exec "$@"
EOF
{ printf '#!%s\n' "$(command -v bash)"; cat <<'EOF'; } >"$repo/build/cpu/bin/99_fake"
if [[ " $* " == *" --plan "* ]]; then
  echo "${RANKS:-1}: $*" >>plans
  [[ ${RANKS:-1} == [13] ]] && exit 0 || exit 64
fi
echo "$*" >>attempts
for sign in started joined; do echo "$sign" >>"${STAGECRAFT_SIGNS#* }"; done
number=$(wc -l <attempts)
end=END_$number saved=SAVED_$number from=FROM_$number reached=DONE_$number
for step in ${!saved:-}; do
  mkdir -p "$DIR/step-$(printf %06d "$step")"
  touch -d "1 hour ago" "$DIR/step-$(printf %06d "$step")/manifest.json"
  [[ -n ${MUTE:-} ]] || echo "saved $step $(date +%s%3N)" >>"${STAGECRAFT_SIGNS#* }"
done
if [[ -n ${!reached:-} ]]; then
  mkdir -p "runs/99_fake/time-$number"
  for ((step = ${!from:-0}; step < ${!reached}; step++)); do
    echo "{\"step\":$step,\"loss\":1}"
  done >"runs/99_fake/time-$number/steps.jsonl"
  touch -d "1 hour ago" "runs/99_fake/time-$number/steps.jsonl"
fi
[[ ${!end} != kill ]] || kill -KILL $$
[[ ${!end} != segv ]] || kill -SEGV $$
[[ ${!end} != xfsz ]] || kill -XFSZ $$
[[ ${!end} != term ]] || kill -TERM "$PPID"
exit "${!end}"
EOF
chmod +x "$repo/build/cpu/bin/99_fake"
PATH=$shims:$PATH
export STAGECRAFT_PRESET=cpu DIR=runs/99_fake/checkpoints
files="--workload $repo/configs/tiny.json --strategy $repo/lessons/99_fake/config.json"
saves=(--save-every 10)
fresh() { rm -rf runs attempts plans mine OUT*; }
# Lost seconds depend on the clock, so they are replaced by T.
restarts() {
  grep -E '^restart ' <<<"$out" | sed -E 's/, [0-9]{1,2}\.[0-9] s are lost/, T s are lost/' || true
}

for end in 75 137 139 153 kill segv xfsz; do
  fresh
  END_1=$end SAVED_1='10 20' DONE_1=25 END_2=0 launch "${saves[@]}" --max-restarts 2
  case $end in
    75) what='a rank was lost' ;;
    139 | segv) what='a rank was killed (SIGSEGV)' ;;
    153 | xfsz) what='a rank was killed (SIGXFSZ)' ;;
    *) what='a rank was killed (SIGKILL)' ;;
  esac
  check "after $end" equal "$code $err$(restarts)" \
    "0 restart 1 of 2: $what; goes on at step 20, 5 steps are redone, T s are lost"
  check "after $end: what runs" equal "$(<attempts)" "$files ${saves[*]}
$files ${saves[*]} --resume latest"
done
for end in 0 64 65 69 70 73; do
  fresh
  END_1=$end SAVED_1=10 END_2=0 launch "${saves[@]}" --max-restarts=2
  check "not after $end" equal "$code $err$(wc -l <attempts)" "$end 1"
done
fresh
END_1=term SAVED_1=10 END_2=0 launch "${saves[@]}" --max-restarts 2
check "not after a signal to the script" equal "$code $(wc -l <attempts)" "143 1"
fresh
END_1=75 SAVED_1=10 launch "${saves[@]}"
check "not without --max-restarts" equal "$code $(wc -l <attempts)" "75 1"

fresh
END_1=75 DONE_1=7 END_2=75 launch "${saves[@]}" --max-restarts 5 --init w
check "no checkpoint: from the beginning" equal "$(restarts)" \
  "restart 1 of 5: a rank was lost; no checkpoint was made, begins again, 7 steps are redone, T s are lost"
check "with what it began with" equal "$(tail -n 1 attempts)" "$files ${saves[*]} --init w"
check "a loop ends" equal "$code $(wc -l <attempts)" "75 2"
check "and says so" contains "$out" \
  "no more restarts: the last one came no further than step 0, so the next one would not either"
fresh
END_1=75 SAVED_1=10 END_2=75 END_3=0 launch "${saves[@]}" --max-restarts 5
check "a loop behind a checkpoint ends" equal "$code $(wc -l <attempts)" "75 2"
fresh
END_1=75 SAVED_1=10 END_2=75 SAVED_2=20 END_3=75 SAVED_3=30 END_4=0 launch "${saves[@]}" --max-restarts 2
check "no more than that many" equal "$code $(wc -l <attempts)" "75 3"
check "the last line" equal "$(tail -n 1 <<<"$out")" "no more restarts: 2 of 2 done"
fresh
END_1=kill SAVED_1=10 END_2=kill launch "${saves[@]}" --max-restarts 0 -n 1
check "0 is none, and the last end is said as ever" contains "$code $err" \
  "75 error: 99_fake: rank 0 was killed (SIGKILL)"

fresh
END_1=75 SAVED_1=10 END_2=75 SAVED_2=20 END_3=0 launch "${saves[@]}" --max-restarts 9 --inject kill@0,3 \
  --crash-at=4 --trace --init w --out OUT
check "faults and initial weights are not repeated, records are not overwritten" equal "$(<attempts)" \
  "$files ${saves[*]} --inject kill@0,3 --crash-at=4 --trace --init w --out OUT
$files ${saves[*]} --trace --resume latest --out OUT-restart-1
$files ${saves[*]} --trace --resume latest --out OUT-restart-2"
fresh
mkdir OUT-restart-1
ln -s none OUT-restart-2
MUTE=1 END_1=75 SAVED_1=10 END_2=0 launch "${saves[@]}" --max-restarts 9 --out OUT/
check "folders of an earlier run are left alone" equal "$(tail -n 1 attempts)" \
  "$files ${saves[*]} --resume latest --out OUT-restart-3"
check "what nobody has said is not guessed" equal "$(restarts)" \
  "restart 1 of 9: a rank was lost; goes on at step 10, 0 steps are redone"
fresh
DIR=mine END_1=75 SAVED_1='999990 1000000' END_2=0 launch "${saves[@]}" --max-restarts 9 --checkpoints mine
check "a directory of its own, and many steps" contains "$(restarts)" "goes on at step 1000000,"

fresh
END_1=75 SAVED_1=10 END_2=75 SAVED_2=20 END_3=75 SAVED_3=30 END_4=0 launch "${saves[@]}" --max-restarts 9 \
  -n 4 --min-ranks 1 --trace
check "fewer ranks, as the workload can be divided" equal "$(restarts)" \
  "restart 1 of 9: a rank was lost; goes on at step 10, 0 steps are redone, T s are lost; \
on 3 ranks instead of 4: from here on sums are added in another order
restart 2 of 9: a rank was lost; goes on at step 20, 0 steps are redone, T s are lost; \
on 1 rank instead of 3: from here on sums are added in another order
restart 3 of 9: a rank was lost; goes on at step 30, 0 steps are redone, T s are lost"
check "asked as the run will be" equal "$(<plans)" \
  "3: $files ${saves[*]} --trace --resume latest --plan --strict
2: $files ${saves[*]} --trace --resume latest --plan --strict
1: $files ${saves[*]} --trace --resume latest --plan --strict"
fresh
END_1=75 SAVED_1=10 END_2=0 launch "${saves[@]}" --max-restarts 9 -n 3 --min-ranks 2
check "no number fits: as many as before" equal "$code $(restarts)" \
  "0 restart 1 of 9: a rank was lost; goes on at step 10, 0 steps are redone, T s are lost"

fresh
mkdir -p runs/99_fake/checkpoints/step-000040
touch runs/99_fake/checkpoints/step-000040/manifest.json
END_1=0 launch "${saves[@]}" --max-restarts 2
check "checkpoints of another run are refused" equal "$code $err" \
  "64 error: --max-restarts: runs/99_fake/checkpoints holds checkpoints of an earlier run, up to step 40
  fix: --resume latest to go on from them, or another directory: --checkpoints DIR"
END_1=75 END_2=0 launch "${saves[@]}" --max-restarts 2 --resume latest
check "going on from them is not" equal "$code $(tail -n 1 attempts)" "0 $files ${saves[*]} --resume latest"
# The program passes over a damaged checkpoint; its first step shows which one it took.
damaged() {
  fresh
  mkdir -p runs/99_fake/checkpoints/step-0000{20,40}
  touch runs/99_fake/checkpoints/step-0000{20,40}/manifest.json
}
damaged
END_1=75 FROM_1=20 DONE_1=36 SAVED_1=30 END_2=75 FROM_2=30 DONE_2=41 SAVED_2=40 END_3=0 launch "${saves[@]}" \
  --max-restarts 9 --resume latest
check "a damaged checkpoint is no mark that restarts have to come past" equal "$code $(restarts)" \
  "0 restart 1 of 9: a rank was lost; goes on at step 30, 6 steps are redone, T s are lost
restart 2 of 9: a rank was lost; goes on at step 40, 1 step is redone, T s are lost"
damaged
END_1=75 FROM_1=20 DONE_1=25 END_2=75 FROM_2=20 DONE_2=25 END_3=0 launch "${saves[@]}" --max-restarts 9 \
  --resume latest
check "and no progress" equal "$code $(restarts)
$(tail -n 1 <<<"$out")" \
  "75 restart 1 of 9: a rank was lost; goes on at step 20, 5 steps are redone, T s are lost
no more restarts: the last one came no further than step 20, so the next one would not either"
fresh
END_1=75 SAVED_1=10 DONE_1=15 END_2=75 FROM_2=10 DONE_2=25 SAVED_2=20 END_3=75 FROM_3=10 DONE_3=25 \
  SAVED_3=20 END_4=0 launch "${saves[@]}" --max-restarts 9
check "nor one that a restart saves, and the next one passes over" equal "$code $(wc -l <attempts)
$(tail -n 1 <<<"$out")" "75 3
no more restarts: the last one began at step 10 again, since what was saved after it is damaged"
fresh
END_1=75 END_2=0 launch "${saves[@]}" --max-restarts 2 --resume other/step-000040 --resume-with steps
check "a restart before the first save begins where the run did" equal "$code $(tail -n 1 attempts)" \
  "0 $files ${saves[*]} --resume other/step-000040 --resume-with steps"

if [[ $(id -u) == 0 ]]; then
  chmod 755 "$sandbox"
  mkdir -m 777 OUT
  run setpriv --reuid 12345 --regid 12345 --clear-groups "$repo/common/setup/launch.sh" 99_fake --no-build \
    "${saves[@]}" --max-restarts 2 --out OUT
  check "no place for a restart's records" equal "$code $err" \
    "73 error: --out OUT: the records of a restart come beside it, and nothing can be written there
  fix: --out DIR in a folder that you may write to"
fi
launch --max-restarts 2
check "a run that does not save" equal "$code $err" \
  "64 error: --max-restarts: this run saves nothing that it could go on from
  fix: add --save-every STEPS"
launch "${saves[@]}" --max-restarts 2 --steps 9
check "nor one whose end comes first" equal "$code $err" \
  "64 error: --max-restarts: this run saves nothing that it could go on from
  fix: a smaller --save-every"
launch "${saves[@]}" --min-ranks 1
check "--min-ranks alone" equal "$code $err" "64 error: --min-ranks: this run is not restarted
  fix: add --max-restarts K"
launch "${saves[@]}" --max-restarts 1 --min-ranks 3 -n 2
check "--min-ranks above -n" equal "$code $err" "64 error: --min-ranks: 3 is more than the 2 ranks of this run
  fix: -n 3 or more"
launch "${saves[@]}" --max-restarts x
check "--max-restarts x" equal "$code $err" "64 error: --max-restarts: 'x' is not a number of restarts
  fix: lessons/99_fake/run.sh --max-restarts 3"
finish_test

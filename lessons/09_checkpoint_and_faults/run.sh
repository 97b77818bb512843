#!/usr/bin/env bash
# Without arguments it plays the lesson's story, in about a minute on two cores. With arguments it sets up and
# builds on first use, then trains, as every lesson's run.sh does; --help lists everything it takes.
set -euo pipefail
lesson=09_checkpoint_and_faults
if (($#)); then
  exec "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/launch.sh" "$lesson" --default-ranks 2 "$@"
fi

source "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/lib.sh"
cd "$root"
for program in "$lesson" 01_data_parallel; do "lessons/$program/run.sh" --preset cpu --build-only; done
made cpu "building checkpoint" checkpoint

story=runs/$lesson/story # what the last story left is removed
mkdir -p "runs/$lesson"
exec 8<>"runs/$lesson/.story.lock"
flock -n 8 || (($? != 1)) ||
  die "$exit_usage" "$story" "another process plays the story there" "wait until it has ended"
rm -rf "$story"
mkdir -p "$story"
# run NAME LESSON RANKS FLAG...: trains. The output goes to story/NAME.txt, with record and weights beside it;
# the lines that matter to the story are also shown here.
run() {
  local name=$1 of=$2 ranks=$3 status=0
  shift 3
  say "\$ lessons/$of/run.sh -n $ranks $*"
  "lessons/$of/run.sh" --preset cpu --no-build -n "$ranks" "$@" --verbose --out "$story/$name" \
    --save "$story/$name.safetensors" >"$story/$name.txt" 2>&1 || status=$?
  grep -hE '^(error: |restart |no more restarts|resumes after |loss )' "$story/$name.txt" |
    sed 's/^/    /' || true
  ((status == 0)) ||
    die "$status" "$lesson" "this run ended with exit code $status" "see $story/$name.txt"
}
hash_of() { sha256sum "$1" | cut -c1-16; }

say "1. 40 steps on two ranks that nothing interrupts"
run quiet "$lesson" 2 --steps 40
say "2. the same, with a checkpoint every 10 steps; rank 1 is killed in step 25"
run killed "$lesson" 2 --steps 40 --save-every 10 --checkpoints "$story/checkpoints" --max-restarts 1 \
  --inject kill@1,25
quiet=$(hash_of "$story/quiet.safetensors") killed=$(hash_of "$story/killed.safetensors")
say "    weights of 1: $quiet"
say "    weights of 2: $killed"
[[ $quiet == "$killed" ]] || die 70 "$lesson" "the weights differ" "see $story"
say "    equal"
say "3. another lesson on three ranks takes that checkpoint, and writes it again before any step of its own"
run taken 01_data_parallel 3 --steps 40 --resume "$story/checkpoints/step-000040" --save-every 40 \
  --checkpoints "$story/taken-over"
say "\$ build/cpu/bin/checkpoint diff $story/checkpoints/step-000040 $story/taken-over/step-000040"
build/cpu/bin/checkpoint diff "$story/checkpoints/step-000040" "$story/taken-over/step-000040" |
  sed 's/^/    /' || die 70 "$lesson" "the checkpoints differ" "see $story"
say "everything is in $story"

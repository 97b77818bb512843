#!/usr/bin/env bash
# Builds and checks the exercises, which are edited where they stand: lessons/*/exercise/*.{cpp,json}. Prints
# what each still needs, and the score.
#   usage  tests/exercises.sh [--solutions] [--build DIR] [WHICH...]
#     WHICH         a lesson (01, 01_data_parallel) or an exercise (overlap); default: all
#     --solutions   checks exercise/solution/ instead
#     --build DIR   a configured build folder; default build/cpu, which is set up on first use
#   exit   0 all are solved; 1 some are not; 64 usage; 69 something is missing
# The last line is always "N of M solved".
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"
cd "$root"

kind=exercise build_dir='' which=()
while (($#)); do
  case $1 in
    --solutions) kind=solution ;;
    --build)
      (($# >= 2)) ||
        die "$exit_usage" "--build" "its folder is missing" "tests/exercises.sh --build build/cpu"
      build_dir=$2
      shift
      ;;
    -h | --help)
      print_header "${BASH_SOURCE[0]}"
      exit 0
      ;;
    -*) die "$exit_usage" "$1" "unknown option of tests/exercises.sh" "tests/exercises.sh --help" ;;
    *) which+=("$1") ;;
  esac
  shift
done

# wanted LESSON NAME: whether the arguments ask for this exercise.
wanted() {
  local one
  ((${#which[@]})) || return 0
  for one in "${which[@]}"; do
    if [[ $one == "$2" || $one == "$1" || $one == "${1%%_*}" ]]; then return 0; fi
  done
  return 1
}

# name_of FILE: the name of the exercise to which FILE belongs.
name_of() {
  local name=${1##*/}
  say "${name%.*}"
}

shopt -s extglob
files=() # what a learner edits
for file in lessons/*/exercise/*.@(cpp|json); do
  lesson=${file#lessons/}
  if wanted "${lesson%%/*}" "$(name_of "$file")"; then files+=("$file"); fi
done
((${#files[@]})) ||
  die "$exit_usage" "${which[*]}" "no lesson with exercises and no exercise has this name" \
  "ls lessons/*/exercise"

if [[ -z $build_dir ]]; then
  build_dir=build/cpu
  common/setup/setup.sh --quiet
  made cpu "building what exercises need; the first time takes minutes" exercises_lent
else
  ninja -C "$build_dir" exercises_lent >"$build_dir/exercises.log" 2>&1 </dev/null ||
    die "$exit_missing" "$build_dir" "what exercises need does not build, see $build_dir/exercises.log" \
    "cmake --preset cpu"
fi

# check NAME: builds one exercise's program and runs it. A file that does not compile counts as not solved.
check() {
  local target=${kind}_$1 log=$build_dir/exercise_$1.log program=$build_dir/tests/exercises/${kind}_$1
  if ! CCACHE_BASEDIR=$root ninja -C "$build_dir" "$target" >"$log" 2>&1 </dev/null; then
    say "not solved yet: $1: it does not compile"
    { grep -m 3 -E 'error' "$log" || tail -n 3 "$log"; } | sed 's/^/  /'
    say "  all output: $log"
    return 1
  fi
  OMP_NUM_THREADS=1 "$program" 2>&1
}

solved=0
for file in "${files[@]}"; do
  name=$(name_of "$file")
  if [[ $kind == solution ]]; then file=${file%/*}/solution/${file##*/}; fi
  say "$file"
  status=0
  said=$(check "$name") || status=$?
  # shellcheck disable=SC2001  # every line is indented
  sed 's/^/  /' <<<"$said"
  if ((status > 1)); then say "  not solved yet: $name: it ended with exit code $status"; fi
  if ((status == 0)); then solved=$((solved + 1)); fi
done
say "$solved of ${#files[@]} solved"
((solved == ${#files[@]}))

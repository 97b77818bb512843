#!/usr/bin/env bash
# An exercise as it is shipped is not solved, and its checker says why.
#   usage  tests/exercises/as_shipped.sh PROGRAM SOURCE REGEX
#     SOURCE  what a learner edits; "": PROGRAM is made of a near-solution (near/), which nobody does
#   exit   0 the checker says "not solved yet: " and REGEX; 1 it says something else; 77 somebody is working
#          on SOURCE
set -euo pipefail
program=$1 source=$2 regex=$3
if [[ -n $source ]] && git rev-parse --is-inside-work-tree >/dev/null 2>&1 &&
  ! git diff --quiet HEAD -- "$source"; then
  echo "$source was edited: tests/exercises.sh checks it"
  exit 77
fi
status=0
said=$("$program") || status=$?
echo "$said"
((status == 1)) && [[ $said =~ ^not\ solved\ yet:\ .*$regex ]]

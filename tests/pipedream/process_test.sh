#!/usr/bin/env bash
# The executable as users start it. usage: process_test.sh PROGRAM (from the repository's root)
set -uo pipefail
program=$1
failures=0

# expect CODE 'text on stdout' 'text on stderr' ARGUMENTS...: an empty text means that the stream is empty.
expect() {
  local code=$1 out=$2 err=$3 got_out got_err got_code
  shift 3
  got_err=$(mktemp)
  got_out=$("$program" "$@" 2>"$got_err")
  got_code=$?
  if [[ $got_code -ne $code ]]; then
    echo "pipedream $*: exit $got_code, expected $code"; failures=$((failures + 1))
  fi
  for pair in "out:$out:$got_out" "err:$err:$(cat "$got_err")"; do
    local name=${pair%%:*} rest=${pair#*:}
    local wanted=${rest%%:*} got=${rest#*:}
    if [[ -z $wanted && -n $got || $got != *"$wanted"* ]]; then
      echo "pipedream $*: std$name is '$got', expected '$wanted'"
      failures=$((failures + 1))
    fi
  done
  rm -f "$got_err"
}

expect 0 'utilisation 57.1 %' '' simulate
expect 0 'pipeline schedules as data' '' --help
expect 0 'no deadlock' '' check
expect 64 '' 'there is no command' nothing
expect 64 '' 'see pipedream simulate --help' simulate --wrong
expect 64 '' 'cannot be read' check --file build/no_such_file.csv
expect 65 '' 'waits until stage' check --schedule deadlock_ring
expect 73 '' 'cannot be written' draw --figure naive_pipeline --out /proc/no/such/file.svg
if [[ -e /dev/full ]]; then
  full=$("$program" simulate 2>&1 >/dev/full)
  code=$?
  if [[ $code -ne 73 || $full != "error: the output cannot be written"* ]]; then
    echo "pipedream simulate >/dev/full: exit $code with '$full', expected 73 with a message"
    failures=$((failures + 1))
  fi
fi
# Output that goes to no terminal must have no colours.
if [[ $("$program" simulate) == *$'\x1b'* ]]; then echo "colour in a pipe"; failures=$((failures + 1)); fi
exit "$((failures > 0))"

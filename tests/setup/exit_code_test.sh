#!/usr/bin/env bash
# launch.sh: exit codes, signals, and that nothing stays behind. mpirun is a stand-in; tests/processes uses the real one.
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

launch=("$repo/common/setup/launch.sh" 99_fake --no-build)
late=("$repo/common/setup/late.sh" "${launch[@]:1}")
sed 's/^  set +m$/&; sleep 0.2/' "${launch[0]}" >"${late[0]}"
chmod +x "${late[0]}"
check "late.sh differs from launch.sh" test "$(grep -c 'sleep 0.2' "${late[0]}")" = 1
shim mpirun.openmpi <<'EOF'
echo $$ >>"$PIDS"
case $DO in
  exit:*) exit "${DO#exit:}" ;;
  kill) kill -KILL $$ ;;
  sleep) exec sleep 60 ;;
  deaf) trap '' TERM INT; echo "$$" >"$PIDS.deaf"; while :; do sleep 0.2; done ;;
esac
EOF
cp "$shims/mpirun.openmpi" "$repo/build/cpu/bin/99_fake"
PATH=$shims:$PATH
export PIDS=$sandbox/pids STAGECRAFT_PRESET=cpu

alive() {
  local pid
  while read -r pid; do
    # A zombie that nobody has read yet is dead.
    [[ ! -d /proc/$pid ]] || grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null || return 0
  done <"$PIDS"
  return 1
}
# until_true COMMAND...: within 20 s, for a busy machine.
until_true() {
  local i
  for ((i = 0; i < 200; i++)); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  return 1
}
none_alive() { ! alive; }
started() { [[ -s $PIDS ]]; }

# mpirun's own ends on several hosts.
for what in "132 could not start the program" "205 mpirun lost a host"; do
  SLURM_JOB_NUM_NODES=2 DO=exit:${what%% *} run "${launch[@]}" -n 2
  check "on several hosts ${what%% *} is a lost rank" equal "$code" 75
  check "and says why: $what" contains "$err" "${what#* }"
done

for ranks in 1 2; do
  for pass in 0 1 64 65 69 70 73 75 110; do
    DO=exit:$pass run "${launch[@]}" -n "$ranks"
    check "exit $pass passes, $ranks ranks" equal "$code$err" "$pass"
  done
  DO=exit:137 run "${launch[@]}" -n "$ranks"
  check "137 is a lost rank, $ranks ranks" equal "$code" 75
  check "its likely reason, $ranks ranks" contains "$err" "if nobody did it, memory ran out"
  # One rank: nobody else is there to say it. More: the others have, under the real mpirun.
  named=$(grep -c '^error: 99_fake: rank 0 was killed' <<<"$err" || true)
  check "137 is named here for one rank alone, $ranks ranks" equal "$named" $((ranks == 1))
  for signal in SEGV:139 ABRT:134 BUS:135; do
    DO=exit:${signal#*:} run "${launch[@]}" -n "$ranks"
    check "${signal%:*} is a lost rank, $ranks ranks" equal "$code" 75
    check "it is named, $ranks ranks" contains "$err" "SIG${signal%:*}"
  done
  OMP_NUM_THREADS=abc DO=exit:0 run "${launch[@]}" -n "$ranks"
  check "a bad OMP_NUM_THREADS is refused, $ranks ranks" equal "$code" 64
  DO='kill' run "${launch[@]}" -n "$ranks"
  check "a killed program is a lost rank, $ranks ranks" equal "$code" 75
  check "bash says nothing of its own, $ranks ranks" equal "$(grep -vE '^error: 99_fake|^  (fix|killed)' <<<"$err")" ''
  # As on a busy machine: the program is dead, and bash knows, before the script waits.
  DO='kill' run "${late[@]}" -n "$ranks"
  check "nor where it notices before the wait, $ranks ranks" equal "$(grep -vE '^error: 99_fake|^  (fix|killed)' <<<"$err")" ''
  check "what the run says is not lost, $ranks ranks" contains "$err" "killed"

  for signal in INT:130 TERM:143 HUP:129; do
    : >"$PIDS"
    # A script that bash starts in the background ignores SIGINT; a terminal's does not.
    DO='sleep' env --default-signal=INT "${launch[@]}" -n "$ranks" >/dev/null 2>"$sandbox/err" &
    pid=$!
    until_true started
    kill -"${signal%:*}" "$pid"
    code=0
    wait "$pid" || code=$?
    check "SIG${signal%:*}, $ranks ranks" equal "$code" "${signal#*:}"
    check "nothing is left after SIG${signal%:*}, $ranks ranks" until_true none_alive
  done
  : >"$PIDS"
  DO='sleep' "${launch[@]}" -n "$ranks" >/dev/null 2>&1 &
  pid=$!
  until_true started
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null || true
  check "nothing is left when launch.sh itself is killed, $ranks ranks" until_true none_alive
done

: >"$PIDS"
DO=deaf "${launch[@]}" -n 1 >/dev/null 2>&1 &
pid=$!
until_true test -s "$PIDS.deaf"
kill -TERM "$pid"
sleep 0.5
check "a program may take its time after the first signal" alive
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
check "the second signal kills" equal "$code" 143
check "nothing is left after it" until_true none_alive

DO=exit:0 run "${launch[@]}" -n 2
check "one line says how ranks are started" contains "$out" "2 ranks on "
DO=exit:0 run "${launch[@]}" --help
check "nothing is said for --help" equal "$out" ""
finish_test

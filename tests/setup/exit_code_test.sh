#!/usr/bin/env bash
# launch.sh: exit codes, signals, and that nothing stays behind. mpirun is a stand-in; tests/processes uses
# the real one.
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"

launch=("$repo/common/setup/launch.sh" 99_fake --no-build)
late=("$repo/common/setup/late.sh" "${launch[@]:1}")
sed 's/^  set +m$/&; sleep 0.2/' "${launch[0]}" >"${late[0]}"
chmod +x "${late[0]}"
check "late.sh differs from launch.sh" test "$(grep -c 'sleep 0.2' "${late[0]}")" = 1
shim mpirun.openmpi <<'EOF'
if [[ -n ${STAGECRAFT_ONLY_MEET:-} ]]; then
  echo "asked: $*"
  for sign in ${MEET-}; do echo "$sign" >>"${STAGECRAFT_SIGNS#* }"; done
  exit "${ANSWER:-1}"
fi
echo $$ >>"$PIDS"
for sign in ${SIGNS-started joined spoke}; do echo "$sign" >>"${STAGECRAFT_SIGNS#* }"; done
case $DO in
  exit:*) exit "${DO#exit:}" ;;
  kill) kill -KILL $$ ;;
  sleep) exec sleep 60 ;;
  oom) echo "oom_kill 4" >"$MACHINE/sys/fs/cgroup/memory.events"; exit 137 ;;
  deaf)
    trap '' TERM INT
    mkdir -p "$TMPDIR/ompi.host.$(id -u)/pid.$$"
    echo "16.0;tcp://" >"$TMPDIR/ompi.host.$(id -u)/pid.$$/contact.txt"
    touch "/dev/shm/vader_segment.test-$$.$(id -u)."{11.0,11.1,12.0}
    echo "$$" >"$PIDS.deaf"
    while :; do sleep 0.2; done ;;
esac
EOF
cp "$shims/mpirun.openmpi" "$repo/build/cpu/bin/99_fake"
PATH=$shims:$PATH
export PIDS=$sandbox/pids STAGECRAFT_PRESET=cpu

alive() {
  local pid
  while read -r pid; do
    # A zombie, whose exit code nobody has read yet, counts as dead.
    [[ ! -d /proc/$pid ]] || grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null || return 0
  done <"$PIDS"
  return 1
}
# until_true COMMAND...: waits until COMMAND succeeds, 20 s at most, since the machine may be busy.
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

# On several hosts mpirun has exit codes of its own.
for what in "132 could not start the program" "205 mpirun lost a host"; do
  SLURM_JOB_NUM_NODES=2 DO=exit:${what%% *} run "${launch[@]}" -n 2
  check "on several hosts ${what%% *} is a lost rank" equal "$code" 75
  check "and says why: $what" contains "$err" "${what#* }"
done

# Every status with which mpirun may end before the ranks have met.
for status in 0 1 126 127 134 139 205 213; do
  for signs in '' started; do
    # After `started`, status 0 means that the program ran, and 129 to 199 that a rank was killed: neither is
    # a failed start.
    if [[ $signs == started ]] && ((status == 0 || status > 128 && status < 200)); then continue; fi
    SIGNS=$signs DO=exit:$status run "${launch[@]}" -n 2
    check "mpirun ends with $status, signs '$signs': 69 and one error" equal \
      "$code $(grep -c '^error: mpirun: ' <<<"$err") $(grep -c '^  fix: ' <<<"$err")" "69 1 1"
    check "mpirun ends with $status: its words" equal "$(tail -n 2 <<<"$err" | cut -c1-46)" \
      "  mpirun's own words:
    asked: -n 2 --oversubscribe --bind-to none"
  done
done
SIGNS='' ANSWER=0 MEET='started joined' DO=exit:1 run "${launch[@]}" -n 2
check "the second time it works" equal "$code $(tail -n 1 <<<"$err")" \
  "69   asked once more, mpirun started them: perhaps the same command works now"
SIGNS='' ANSWER=0 DO=exit:0 run "${launch[@]}" -n 2
check "no rank ran, and mpirun says 0" contains "$code $err" \
  "69 error: mpirun: it could not start the 2 ranks"
SIGNS='started' DO=exit:1 run "${launch[@]}" -n 2
check "ranks that cannot meet" contains "$err" \
  "error: mpirun: the 2 ranks were started and could not reach each other (exit code 1)"
SIGNS='' DO=exit:1 OMPI_MCA_btl=self OMPI_MCA_pml=ob1 run "${launch[@]}" -n 2
check "settings are named" contains "$err" "unset OMPI_MCA_btl OMPI_MCA_pml"
SIGNS='started joined' DO=exit:1 run "${launch[@]}" -n 2
check "mpirun ends in the middle of a run" contains "$code $err" \
  "75 error: 99_fake: mpirun ended with exit code 1 in the middle of the run"
SIGNS='started' DO=exit:137 run "${launch[@]}" -n 2
check "a rank killed before they met" contains "$code $err" \
  "75 error: 99_fake: a rank or mpirun was killed (SIGKILL)"
SIGNS='' DO=exit:127 run "${launch[@]}" -n 1
check "a program that cannot be loaded" contains "$code $err" \
  "69 error: 99_fake: the program could not be started (exit code 127)"
SIGNS='' DO=exit:132 run "${launch[@]}" -n 1
check "or that this processor cannot run" contains "$code $err" \
  "75 error: 99_fake: rank 0 was killed (SIGILL)"
SIGNS='started' DO=exit:110 run "${launch[@]}" -n 1
check "a program's own code passes" equal "$code$err" 110
: >"$PIDS"
for place in /proc /dev/null "$sandbox/shims/mpirun.openmpi"; do
  TMPDIR=$place DO=exit:0 run "${launch[@]}" -n 2
  check "TMPDIR=$place" equal "$code $(head -n 3 <<<"$err")" \
    "69 error: TMPDIR $place: mpirun needs a folder there, and none can be made
  fix: export TMPDIR=/tmp, or another folder that you may write to
  mpirun's own words:"
done
printf 'localhost slots=2\r\n' >"$sandbox/cr"
printf 'localhost\0\1' >"$sandbox/binary"
for hosts in "cr:its lines end as on Windows (CR LF)" "binary:it is no text" "none:there is no such file" \
  ".:it cannot be read"; do
  OMPI_MCA_orte_default_hostfile=$sandbox/${hosts%%:*} DO=exit:0 run "${launch[@]}" -n 2
  check "hostfile: ${hosts#*:}" contains "$code $err" \
    "69 error: OMPI_MCA_orte_default_hostfile $sandbox/${hosts%%:*}: ${hosts#*:}
  fix: a text file"
done
check "of these no run has begun" equal "$(<"$PIDS")" ''
TMPDIR=/proc ANSWER=0 MEET=joined DO=exit:0 run "${launch[@]}" -n 2
check "what mpirun can do with is no error" equal "$code$err" 0
TMPDIR=/proc DO=exit:0 run "${launch[@]}" -n 1
check "one rank needs no folder" equal "$code$err" 0
shim 99_home <<<'echo "home: ${HOME-none}"'
cp "$shims/99_home" "$repo/build/cpu/bin/99_home"
mkdir "$repo/lessons/99_home"
run env -u HOME setpriv --reuid 12345 --clear-groups "$repo/common/setup/launch.sh" 99_home --no-build
[[ $(id -u) == 0 && $code != 0 ]] || check "HOME is never missing" contains "$out" "home: /"

for ranks in 1 2; do
  for pass in 0 64 65 69 70 73 75; do
    DO=exit:$pass run "${launch[@]}" -n "$ranks"
    check "exit $pass passes, $ranks ranks" equal "$code$err" "$pass"
  done
  DO=exit:137 run "${launch[@]}" -n "$ranks"
  check "137 is a lost rank, $ranks ranks" equal "$code" 75
  check "its likely reason, $ranks ranks" contains "$err" "if nobody did it, memory ran out"
  check "a rank has said the error: no second one, $ranks ranks" equal "$err" \
    "  killed with SIGKILL; ${err#*; }"
  (
    ulimit -t 1000
    DO=exit:137 run "${launch[@]}" -n "$ranks"
    [[ $err == *"1000 s of processor time"* && $err != *memory* ]]
  ) && code=0 || code=1
  check "a limit of processor time is no lack of memory, $ranks ranks" equal "$code" 0
  for signal in KILL:137 XFSZ:153 PIPE:141 XCPU:152 SYS:159 USR2:140; do
    SIGNS='started joined' DO=exit:${signal#*:} run "${launch[@]}" -n "$ranks"
    check "${signal#*:} is a lost rank with the signal's name, $ranks ranks" equal \
      "$code $(grep -c "^error: .*(SIG${signal%:*})\$" <<<"$err") $(grep -c '^  fix: ' <<<"$err")" "75 1 1"
    check "two lines, $ranks ranks" equal "$(wc -l <<<"$err")" 2
  done
  for signal in SEGV:139 ABRT:134 BUS:135; do
    DO=exit:${signal#*:} run "${launch[@]}" -n "$ranks"
    check "${signal%:*} is a lost rank, $ranks ranks" equal "$code" 75
    check "it is named, $ranks ranks" contains "$err" "SIG${signal%:*}"
  done
  OMP_NUM_THREADS=abc DO=exit:0 run "${launch[@]}" -n "$ranks"
  check "a bad OMP_NUM_THREADS is refused, $ranks ranks" equal "$code" 64
  DO='kill' run "${launch[@]}" -n "$ranks"
  check "a killed program is a lost rank, $ranks ranks" equal "$code" 75
  check "bash says nothing of its own, $ranks ranks" equal \
    "$(grep -vE '^error: 99_fake|^  (fix|killed)' <<<"$err")" ''
  # As on a busy machine, the program dies, and bash knows it, before the script waits.
  DO='kill' run "${late[@]}" -n "$ranks"
  check "nor where it notices before the wait, $ranks ranks" equal \
    "$(grep -vE '^error: 99_fake|^  (fix|killed)' <<<"$err")" ''
  check "what the run says is not lost, $ranks ranks" contains "$err" "killed"

  for signal in INT:130 TERM:143 HUP:129; do
    : >"$PIDS"
    # Bash starts a background script with SIGINT ignored, unlike a terminal, so the default is restored.
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

# The kernel counts processes that it killed for lack of memory; the scripts read a fake count here.
sed -i "s/memory_kills ''/memory_kills \"\${MACHINE-}\"/" "$repo/common/setup/"{launch,ending}.sh
export MACHINE=$sandbox/machine
mkdir -p "$MACHINE/proc/self" "$MACHINE/sys/fs/cgroup"
echo "0::/" >"$MACHINE/proc/self/cgroup"
for ranks in 1 2; do
  printf 'oom 3\noom_kill 3\n' >"$MACHINE/sys/fs/cgroup/memory.events"
  DO=oom run "${launch[@]}" -n "$ranks"
  check "memory ran out, $ranks ranks" contains "$code $err" \
    "; memory ran out, and the system ended it (its control group counts such ends): fewer ranks, "
done
DO=exit:137 run "${launch[@]}" -n 2
check "an earlier lack of it is not this run's" contains "$code $err" "; if nobody did it, memory ran out"

: >"$PIDS"
mkdir "$sandbox/session"
TMPDIR=$sandbox/session DO=deaf "${launch[@]}" -n 1 >/dev/null 2>&1 &
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
check "nor what mpirun would have taken away" equal \
  "$(echo "$sandbox/session/ompi.host.$(id -u)/"* /dev/shm/vader_segment."test-$(<"$PIDS.deaf")".*)" \
  "$sandbox/session/ompi.host.$(id -u)/* /dev/shm/vader_segment.test-$(<"$PIDS.deaf").$(id -u).12.0"
rm "/dev/shm/vader_segment.test-$(<"$PIDS.deaf")".*

DO=exit:0 run "${launch[@]}" -n 2 --verbose
check "with --verbose one line says how ranks are started" contains "$out" "2 ranks on "
DO=exit:0 run "${launch[@]}" --help
check "nothing is said for --help" equal "$out" ""

# Every message must reach stderr in one write: a pipe of packets would show two.
if command -v strace >/dev/null; then
  OMP_NUM_THREADS=abc strace -f -qq -e trace=write -s 400 -o "$sandbox/trace" "${launch[@]}" >/dev/null 2>&1 \
    </dev/null || true
  check "an error is one write" equal \
    "$(grep -c 'write([12], .*error: OMP_NUM_THREADS.*fix: ' "$sandbox/trace")" 1
fi
finish_test

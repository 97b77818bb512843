# shellcheck shell=bash disable=SC2034,SC2154
# How a run ended, for launch.sh: the meaning of mpirun's status, and the message if no rank was left to print
# one. Sourced, never run.

# --- what ranks leave behind --------------------------------------------------------------------------------

# Two files that this script hands to its ranks as /proc/PID/fd/N. They have no name, so nobody else opens
# them, and nothing is left of them. If they cannot be made, a run goes on without.
#   STAGECRAFT_SIGNAL_FILE  the number of the first signal: mpirun ends its ranks with SIGTERM, whatever it
#                           received
#   STAGECRAFT_SIGNS        "TOKEN FILE": ranks append `started` in main(), `joined` when all have met,
#                           `spoke` after an error; watch_start() appends `late`. The file's first line is the
#                           token: on another host the same path may lead to an unrelated file. Rank 0 adds
#                           `out DIR`
# nameless NAME: opens a file without a name and sets `nameless` to its path.
nameless() {
  local place path descriptor
  nameless=''
  for place in "${TMPDIR:-/tmp}" /dev/shm /tmp; do
    if path=$(mktemp -p "$place" "stagecraft-$1-XXXXXXXXXX" 2>/dev/null); then
      exec {descriptor}<>"$path"
      rm -f "$path"
      nameless=/proc/$$/fd/$descriptor
      return
    fi
  done
}

make_files_of_ranks() {
  nameless signal
  STAGECRAFT_SIGNAL_FILE=$nameless
  nameless signs
  signs=$nameless
  STAGECRAFT_SIGNS=${signs:+$$-$RANDOM$RANDOM$RANDOM $signs}
  export STAGECRAFT_SIGNAL_FILE STAGECRAFT_SIGNS
}
forget_signs() { if [[ -n $signs ]]; then say "${STAGECRAFT_SIGNS%% *}" >"$signs"; fi; }
left() { [[ -n $signs ]] && grep -qxF "$1" "$signs"; } # left SIGN: some rank has

# find_family: sets `family` to the processes that mpirun has started. mpirun's srun has a process group of
# its own and outlives mpirun.
find_family() { read -ra family < <(cat "/proc/$child/task/"*/children 2>/dev/null) || true; }
kill_all() { kill -KILL -- "-$child" "${family[@]}" "${family[@]/#/-}" 2>/dev/null || true; }

# kill_after TENTHS: kills the run if it has not ended within TENTHS of a second. Stops when the run ends.
kill_after() {
  local i
  for ((i = 0; i < $1; i++)); do
    sleep 0.1
    kill -0 "$child" || return 0
  done
  kill_all
}

# sweep: removes leftovers of a killed mpirun: its session folder, and the shared memory by which its ranks
# met.
sweep() {
  local folder
  for folder in \
    "${OMPI_MCA_orte_tmpdir_base:-${TMPDIR:-${TEMP:-${TMP:-/tmp}}}}/ompi."*".$(id -u)/pid.$child"; do
    [[ -f $folder/contact.txt ]] || continue
    # contact.txt begins with the number of mpirun's own job; its ranks are the job with the next number.
    printf -v job %x $(($(number "$(content "$folder/contact.txt" | cut -d . -f 1)" 0) + 1))
    rm -rf "$folder" "/dev/shm/vader_segment."*".$(id -u).$job."*
  done
}

# Ranks meet within seconds or never: mpirun waits silently for a host or a session file that never comes.
# Only busy machines and many hosts take longer.
start_limit=$(whole STAGECRAFT_START_SECONDS 300)
watch_start() { # SECONDS
  (  # this watcher ends with the start
    for ((i = 0; i < 2 * $1; i++)); do
      sleep 0.5
      kill -0 "$child" && ! left joined || exit 0
    done
    say late >>"${signs:-/dev/null}"
    find_family
    kill -TERM "$child"
    kill_after 100
    kill_all
  ) </dev/null >/dev/null 2>&1 &
}

# require_limits: refuses limits of the system that not even this script can work with.
require_limits() {
  local files size
  files=$(ulimit -n) size=$(ulimit -f)
  if [[ $files != unlimited ]] && ((files < 32)); then
    die "$exit_missing" "ulimit -n $files" "a run needs more open files" "ulimit -n 1024"
  fi
  if [[ $size != unlimited ]] && ((size < 64)); then
    die "$exit_missing" "ulimit -f $size" "a run writes larger files" "ulimit -f unlimited"
  fi
}

# --- what a status means ------------------------------------------------------------------------------------

# kind_of STATUS: the kind of end for mpirun's status. `code`: an exit code of docs/troubleshooting.md;
# `lost`: a rank ended by a signal, or mpirun in the middle of a run; `unstarted`: mpirun or the program ended
# before ranks had met.
kind_of() {
  local known=0  # whether its ranks are all on this host and can leave signs
  if [[ -n $signs && $several_hosts == 0 ]]; then known=1; fi
  if left late && ! left joined; then
    say unstarted
    return
  fi
  case $1 in
    64 | 65 | 69 | 70 | 73 | 75 | 129 | 130 | 143) say code ;;
    0) if ((ranks == 1 || known == 0)) || left started; then say code; else say unstarted; fi ;;
    *)
      if ((ranks > 1)) && left joined; then
        say lost
      elif [[ -n $(signal_of "$1") ]] && { ((ranks == 1 || known == 0)) || left started; }; then
        say lost
      elif (($1 == 205 && several_hosts)); then
        say lost
      elif ((ranks == 1)) && left started; then
        say code
      else
        say unstarted
      fi
      ;;
  esac
}

# signal_of STATUS: the signal's name, e.g. SIGKILL for 137; empty if the status stands for no signal.
signal_of() {
  local name
  if (($1 > 128 && $1 <= 192)) && name=$(kill -l $(($1 - 128)) 2>/dev/null); then say "SIG$name"; fi
}

# killed_advice SIGNAL: the likely cause of a rank's death by SIGNAL, and the fix.
killed_advice() {
  local limit
  case $1 in
    SIGKILL)
      limit=$(ulimit -t)
      if (($(number "$(memory_kills '')" 0) > kills_before)); then
        say "memory ran out, and the system ended it (its control group counts such ends):" \
          "fewer ranks, batch.micro smaller, or --memory-cap to see it named"
      elif [[ $limit == unlimited ]]; then
        say "if nobody did it, memory ran out (dmesg says so):" \
          "fewer ranks, batch.micro smaller, or --memory-cap to see it named"
      else
        say "if nobody did it, it had used the $limit s of processor time that it may have:" \
          "ulimit -t unlimited, or fewer --steps"
      fi
      ;;
    SIGXCPU) say "it has used the processor time that it may have: ulimit -t unlimited, or fewer --steps" ;;
    SIGXFSZ) say "a file would have grown past what is allowed: ulimit -f unlimited" ;;
    SIGPIPE) say "nobody reads any more what it prints: let it print to a file" ;;
    SIGILL | SIGTRAP | SIGABRT | SIGBUS | SIGFPE | SIGSEGV | SIGSYS)
      say "that is an error in the program: please report it with the command line and the lines above"
      ;;
    *) say "it was sent that signal; with --save-every, --resume latest goes on" ;;
  esac
}

# lost STATUS: prints that a rank was lost and ends with 75. If a remaining rank, or mpirun on several hosts,
# has already printed an error, only a last line is added.
lost() {
  local signal what advice
  if ((several_hosts && ranks > 1)); then
    case $1 in
      132)
        last_words "where mpirun says above that it could not start the program: the same path must lead to \
it on every host; otherwise a processor lacks an instruction (SIGILL)"
        ;;
      205)
        last_words "mpirun lost a host, named above: start again without it; with --save-every, \
--resume latest goes on"
        ;;
    esac
  fi
  signal=$(signal_of "$1")
  what="a rank or mpirun was killed ($signal)" advice=$(killed_advice "$signal")
  if ((ranks == 1)); then what="rank 0 was killed ($signal)"; fi
  if [[ -z $signal ]]; then
    what="mpirun ended with exit code $1 in the middle of the run" \
      advice="look at what is said above; with --save-every, --resume latest goes on"
  fi
  if left spoke || ((several_hosts && ranks > 1)); then
    last_words "${signal:+killed with $signal; }$advice"
  fi
  die "$exit_lost_rank" "$lesson" "$what" "$advice"
}
last_words() {
  cat >&2 <<<"  $1"
  exit "$exit_lost_rank"
}

# --- before any rank runs -----------------------------------------------------------------------------------

# hostfile_trouble FILE: the visible mistake in a file of hosts that mpirun will read; empty if none can be
# seen from this host.
hostfile_trouble() {
  if [[ ! -e $1 ]]; then
    say "there is no such file"
  elif [[ ! -f $1 || ! -r $1 ]]; then
    say "it cannot be read"
  elif LC_ALL=C grep -qaP '[^\t\n\r\x20-\x7e\x80-\xff]' "$1"; then
    say "it is no text"
  elif grep -qa $'\r' "$1"; then
    say "its lines end as on Windows (CR LF)"
  fi
}

# mpirun_settings: the variables by which the user has changed Open MPI's defaults.
mpirun_settings() {
  compgen -e | grep -E '^(OMPI_MCA|PMIX_MCA|OPAL|PRTE_MCA)_' |
    grep -vx OMPI_MCA_orte_base_help_aggregate || true
}

# suspect: sets `where`, `what` and `fix` to something that mpirun needs and that looks wrong; returns 1 if
# nothing does.
suspect() {
  local place=${TMPDIR:-${TEMP:-${TMP:-/tmp}}} hosts=${OMPI_MCA_orte_default_hostfile:-} folder
  ((ranks > 1)) || return 1
  if [[ -n $hosts && -n $(hostfile_trouble "$hosts") ]]; then
    where="OMPI_MCA_orte_default_hostfile $hosts" what=$(hostfile_trouble "$hosts")
    fix="a text file with a host on each line, its path absolute; or unset OMPI_MCA_orte_default_hostfile"
  elif [[ $(ulimit -n) != unlimited ]] && (($(ulimit -n) < 64)); then
    where="ulimit -n $(ulimit -n)" what="mpirun needs more open files" fix="ulimit -n 1024"
  elif [[ $(ulimit -f) != unlimited ]] && (($(ulimit -f) < 65536)); then
    where="ulimit -f $(ulimit -f)" what="mpirun's ranks share files that are larger" fix="ulimit -f unlimited"
  elif folder=$(mktemp -d -p "$place" 2>/dev/null); then
    rmdir "$folder"
    return 1
  else
    where="TMPDIR $place" what="mpirun needs a folder there, and none can be made"
    fix="export TMPDIR=/tmp, or another folder that you may write to"
  fi
}

# ask_mpirun: starts ranks that only meet and shows mpirun's own messages. Sets `answer`, 0 if the ranks have
# met, and `words`, the messages.
ask_mpirun() {
  local -a again=("${command[0]}")
  local word
  for word in "${command[@]:1}"; do
    if [[ $word != -q ]]; then again+=("$word"); fi
  done
  answer=0
  forget_signs
  nameless words  # no pipe, because what outlives mpirun would hold it open
  STAGECRAFT_ONLY_MEET=1 OMPI_MCA_orte_base_help_aggregate=0 "${again[@]}" </dev/null \
    >"${nameless:-/dev/null}" 2>&1 &
  child=$!
  watch_start $((start_limit < 60 ? start_limit : 60))
  wait "$child" || answer=$?
  sweep
  # mpirun may report success for ranks that never started, so the ranks' own sign counts.
  if [[ -n $signs && $answer == 0 ]] && ! left joined; then answer=1; fi
  words=$(sed -e '/^-*$/d' -e 's/^/    /' "${nameless:-/dev/null}" | awk '!seen[$0]++' | head -n 40)
}

# refuse_what_mpirun_cannot: before the run, lets mpirun try whatever looks wrong, and refuses the run if it
# fails.
refuse_what_mpirun_cannot() {
  local where what fix words answer
  suspect || return 0
  ask_mpirun
  ((answer == 0)) || die "$exit_missing" "$where" "$what" "$fix" "  mpirun's own words:"$'\n'"$words"
}

# unstarted STATUS: prints why mpirun or the program ended before the ranks had met, as far as known, and ends
# with 69.
unstarted() {
  local where=mpirun what="it could not start the $ranks ranks" \
    fix="common/setup/doctor.sh tries mpirun alone" settings words answer more='' how
  how=$(signal_of "$1")
  if left started; then what="the $ranks ranks were started and could not reach each other"; fi
  if left late; then what="its $ranks ranks have not met in $start_limit s" how="it was ended then"; fi
  settings=$(mpirun_settings)
  if [[ -n $settings ]]; then
    fix="without the settings of Open MPI that are not its own: unset ${settings//$'\n'/ }"
  fi
  if ((ranks == 1)); then
    where=$lesson what="the program could not be started" \
      fix="what it lacks is said above; common/setup/doctor.sh names what is missing"
  elif ((several_hosts == 0)); then  # on several hosts mpirun has said it already
    ask_mpirun
    more="  mpirun's own words:"$'\n'"$words"
    if ((answer == 0)); then
      more="  asked once more, mpirun started them: perhaps the same command works now"
    fi
  fi
  die "$exit_missing" "$where" "$what (${how:-exit code $1})" "$fix" "$more"
}

# shellcheck shell=bash disable=SC2030,SC2031,SC2034,SC2154
# --max-restarts and --min-ranks of launch.sh: restarts a run that has lost a rank. Sourced, never run; reads
# and changes launch.sh's `arguments` and `ranks`.

# Restarts of this run so far.
restarts=0
# The step at which this attempt begins, or an earlier one if checkpoints are damaged.
resumed_at=0
# The step at which the attempt before this one really began.
began_at=-1
# `seen` lists the checkpoints before this attempt; `log_before` is its newest_log.
seen=''

# value_of FLAG: the argument of FLAG in `arguments`; empty if it was not given.
value_of() {
  local i value=''
  for ((i = 0; i < ${#arguments[@]}; i++)); do
    case ${arguments[i]} in
      "$1") value=${arguments[i + 1]:-} ;;
      "$1="*) value=${arguments[i]#*=} ;;
    esac
  done
  say "$value"
}

# drop FLAG...: removes the flags from `arguments`, with their values unless they are switches.
drop() {
  local i flag
  local -a kept=()
  for ((i = 0; i < ${#arguments[@]}; i++)); do
    for flag in "$@"; do
      case ${arguments[i]} in
        --trace | --profile) [[ $flag != "${arguments[i]}" ]] || continue 2 ;;
        "$flag")
          i=$((i + 1))
          continue 2
          ;;
        "$flag="*) continue 2 ;;
      esac
    done
    kept+=("${arguments[i]}")
  done
  arguments=("${kept[@]}")
}

checkpoints_dir() {
  local dir
  dir=$(value_of --checkpoints)
  say "${dir:-runs/$lesson/checkpoints}"
}

# checkpoints_in DIR: one line "STEP WRITTEN" for each checkpoint, in order of steps.
checkpoints_in() {
  local path step
  for path in "$1"/step-*; do
    step=${path##*/step-}
    [[ $step =~ ^[0-9]{6,18}$ && -f $path/manifest.json ]] || continue
    say "$((10#$step)) $(stat -c %.Y "$path/manifest.json")"
  done | sort -n
}

# newest_step DIR: the newest checkpoint's step; empty if there is none.
newest_step() { checkpoints_in "$1" | tail -n 1 | cut -d ' ' -f 1; }

# newest_log: the newest steps.jsonl of this lesson below runs/; empty if there is none.
newest_log() {
  local log
  log=$(value_of --out)/steps.jsonl
  # Folders of runs are named by time, so the last name is the newest.
  [[ $log != /steps.jsonl ]] || for log in runs/"$lesson"/*/steps.jsonl; do :; done
  if [[ -f $log ]]; then say "$log"; fi
}

# steps_done: the steps that the last attempt has logged, as "FIRST AFTER_LAST".
steps_done() {
  local log steps=''
  # A run writes its folder into the file of signs, since another run may write in runs/ at the same time.
  log=$(sed -n 's|^out \(.*\)|\1/steps.jsonl|p' "${signs:-/dev/null}" | tail -n 1)
  if [[ -z $log && $(newest_log) != "$log_before" ]]; then log=$(newest_log); fi
  if [[ -f $log ]]; then steps=$(grep -o '"step":[0-9]\{1,15\}' "$log" || true); fi
  steps=${steps//'"step":'/}
  say "${steps%%$'\n'*}" "${steps##*$'\n'}" |
    awk -v none="$resumed_at" '{print NF ? $1 " " $2 + 1 : none " " none}'
}

# started_at PID: the start time in clock ticks since boot, which no later process with the same PID shares.
started_at() {
  local -a fields
  read -ra fields <<<"$(sed 's/.*) //' "/proc/$1/stat")"  # from the third field on
  say "${fields[19]}"
}

# check_restarts: before the first attempt, refuses restarts that could not work.
check_restarts() {
  local dir newest resume
  [[ -n $max_restarts || -z $min_ranks ]] ||
    die "$exit_usage" "--min-ranks" "this run is not restarted" "add --max-restarts K"
  [[ -n $max_restarts ]] || return 0
  ((saves)) ||
    die "$exit_usage" "--max-restarts" "this run saves nothing that it could go on from" \
    "add --save-every STEPS"
  [[ ! $(value_of --steps)/$(value_of --save-every) =~ ^([0-9]+)/([0-9]+)$ ]] ||
    ((10#${BASH_REMATCH[1]} >= 10#${BASH_REMATCH[2]})) ||
    die "$exit_usage" "--max-restarts" "this run saves nothing that it could go on from" \
    "a smaller --save-every"
  ((${min_ranks:-1} <= ranks)) ||
    die "$exit_usage" "--min-ranks" "$min_ranks is more than the $ranks ranks of this run" \
    "-n $min_ranks or more"
  first_out=$(value_of --out)
  [[ ! -e $first_out || -w $(dirname -- "$first_out") ]] ||
    die "$exit_cannot_write" "--out $first_out" \
    "the records of a restart come beside it, and nothing can be written there" \
      "--out DIR in a folder that you may write to"
  dir=$(checkpoints_dir)
  seen=$(checkpoints_in "$dir")
  newest=$(newest_step "$dir")
  resume=$(value_of --resume)
  if [[ $resume == latest ]]; then
    resumed_at=${newest:-0}
    return
  fi
  # Checkpoints of an earlier run are refused, because a restart could not tell them from this run's.
  [[ -z $newest ]] ||
    die "$exit_usage" "--max-restarts" "$dir holds checkpoints of an earlier run, up to step $newest" \
      "--resume latest to go on from them, or another directory: --checkpoints DIR"
  if [[ $resume =~ /step-([0-9]{6,18})/?$ ]]; then
    resumed_at=$((10#${BASH_REMATCH[1]}))
  elif [[ -n $resume ]]; then
    resume=$(newest_step "$resume")
    resumed_at=${resume:-0}
  fi
}

# accepts RANKS: whether a run with so many ranks would begin. The program decides by rows, memory and GPUs.
accepts() (
  ranks=$1
  arguments+=(--plan --strict)
  compose
  timeout -k 5 "$start_limit" "${command[@]}" >/dev/null 2>&1 </dev/null
)

# fewer_ranks: the next smaller number of ranks that a run accepts and --min-ranks allows; if none, the
# current number.
fewer_ranks() {
  local fewer
  for ((fewer = ranks - 1; fewer >= ${min_ranks:-ranks}; fewer--)); do
    if accepts "$fewer"; then
      say "$fewer"
      return
    fi
  done
  say "$ranks"
}

# is_of_use FIRST SAVED: whether to restart after an attempt that began at step FIRST and saved step SAVED;
# otherwise says why not and returns 1.
is_of_use() {
  if ((restarts > 0 && $2 <= $1)); then
    say "no more restarts: the last one came no further than step $1, so the next one would not either"
  elif (($1 <= began_at && began_at < resumed_at)); then
    say "no more restarts: the last one began at step $1 again, since what was saved after it is damaged"
  elif ((restarts == max_restarts)); then
    say "no more restarts: $max_restarts of $max_restarts done"
  else
    return 0
  fi
  return 1
}

# [anchor: go-on-from-the-last]
# prepare_restart STATUS BEGAN: after an attempt that ended with STATUS, sets `arguments` and `ranks` for the
# next one; returns 1 if there is none. No restart follows an end that would come again (64 to 73), or one
# that somebody asked for.
prepare_restart() {
  local what dir first reached there made saved since=$2 again fewer line number
  [[ -n $max_restarts ]] || return 1
  [[ $1 == 75 || $(kind_of "$1") == lost ]] || return 1
  # With several hosts, 132 and 205 mean that a host is lost or lacks the program, so a restart is no use.
  if ((several_hosts && ranks > 1)) && [[ $1 == 132 || $1 == 205 ]]; then return 1; fi
  what=$(signal_of "$1")
  if [[ -n $what ]]; then what="a rank was killed ($what)"; else what="a rank was lost"; fi
  dir=$(checkpoints_dir)
  read -r first reached < <(steps_done)
  there=$(checkpoints_in "$dir")
  made=$(grep -vxF "$seen" <<<"$there" | tail -n 1 || true)  # the newest checkpoint of this attempt
  saved=${made% *}
  is_of_use "$first" "${saved:-0}" || return 1
  restarts=$((restarts + 1)) began_at=$first seen=$there
  resumed_at=${saved:-$first}  # newer checkpoints from before were damaged
  line="restart $restarts of $max_restarts: $what;"
  drop --inject --crash-at
  if [[ -n $there ]]; then
    line+=" goes on at step $resumed_at"
    # The save's time is the rank's own report, because a file server's clock may differ.
    if [[ -n $saved ]]; then
      since=$(sed -n "s/^saved $saved \(.*\)\(...\)$/\1.\2/p" "${signs:-/dev/null}" | tail -n 1)
    fi
    drop --init --resume
    arguments+=(--resume latest)
  else
    line+=" no checkpoint was made, begins again"
  fi
  again=$((reached > resumed_at ? reached - resumed_at : 0))
  line+=", $again step$( ((again == 1)) && printf ' is' || printf 's are') redone"
  if [[ -n $since ]]; then
    since=$(LC_ALL=C awk -v since="$since" -v now="$(date +%s.%N)" 'BEGIN {printf "%.1f", now - since}')
    line+=", $since s are lost"
  fi
  fewer=$(fewer_ranks)
  if ((fewer < ranks)); then
    line+="; on $fewer rank$( ((fewer == 1)) || printf s) instead of $ranks:"
    line+=" from here on sums are added in another order"
    ranks=$fewer
  fi
  # A record belongs to one attempt, so a restart writes to a new folder, whose name an earlier run may have
  # used.
  if [[ -n $first_out ]]; then
    first_out=${first_out%/} number=$restarts
    while [[ -e $first_out-restart-$number || -L $first_out-restart-$number ]]; do
      number=$((number + 1))
    done
    drop --out
    arguments+=(--out "$first_out-restart-$number")
  fi
  say "$line"
}

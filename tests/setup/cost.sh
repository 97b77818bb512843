#!/usr/bin/env bash
# What the three commands cost on this machine: CPU minutes (user + sys) and minutes, each in a fresh clone of
# HEAD with an empty compiler cache; and the twenty tests that took longest. Sleeps cost no CPU; a busy
# machine changes minutes, and CPU minutes little.
#   usage  tests/setup/cost.sh [--before COMMIT] [first | run | ci ...]      default: all three; half an hour
#          or more
#     --before COMMIT  measures that commit: a machine is judged by what a command took on another one, or
#                      before a change
#     first   lessons/01_data_parallel/run.sh
#     run     tests/run.sh
#     ci      .ci/run
#   exit   0; 1 one of them failed (its output: build/cost/NAME.log)
# Writes docs/results/cost.json.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/lib.sh"
cd "$root"

commit=$(git rev-parse --short=12 HEAD) # a commit made meanwhile is not what was measured
kind=commands
if [[ ${1:-} == --before ]]; then
  commit=$(git rev-parse --short=12 "${2:?COMMIT}") kind=before
  shift 2
fi
which=("$@")
((${#which[@]})) || which=(first run ci)
logs=$root/build/cost
mkdir -p "$logs"
scratch=$(mktemp -d)
chmod 755 "$scratch" # tests are other users, too
trap 'rm -rf "$scratch"' EXIT

for name in "${which[@]}"; do
  case $name in
    first) command=lessons/01_data_parallel/run.sh ;;
    run) command=tests/run.sh ;;
    ci) command=.ci/run ;;
    *) die "$exit_usage" "$name" "is none of first, run, ci" "tests/setup/cost.sh run" ;;
  esac
  git clone -q "$root" "$scratch/$name"
  git -C "$scratch/$name" checkout -q --detach "$commit"
  TIMEFORMAT='%R %U %S' status=0
  # The timed command must use nothing of this folder, neither what setup installed nor what it compiled.
  {
    time (CDPATH='' cd "$scratch/$name" &&
      env -u LIBTORCH_ROOT CCACHE_DIR="$scratch/ccache-$name" "$command" >"$logs/$name.log" 2>&1 </dev/null)
  } 2>"$logs/$name.time" || status=$?
  cp "$scratch/$name/build/cpu/ctest.xml" "$logs/$name.xml" 2>/dev/null || true
  rm -rf "${scratch:?}/$name" "$scratch/ccache-$name"
  say "$name: exit $status, $(cat "$logs/$name.time") seconds: on the clock, user, sys"
  ((status == 0)) || exit 1
done
python3 -B - "$logs" "$commit" "$kind" "${which[@]}" <<'PY'
import json, os, pathlib, re, sys, xml.etree.ElementTree as tree
logs, commit, kind, names = pathlib.Path(sys.argv[1]), *sys.argv[2:4], sys.argv[4:]
file = pathlib.Path("docs/results/cost.json")
found = json.loads(file.read_text()) if file.exists() else {}
for name in names:
    wall, user, system = map(float, (logs / f"{name}.time").read_text().split())
    log = (logs / f"{name}.log").read_text()
    found.setdefault(kind, {})[name] = {
        "commit": commit,
        "cores": len(os.sched_getaffinity(0)),
        "cpu_minutes": (user + system) / 60,
        "minutes": wall / 60,
        "stages": {what: int(seconds) for what, seconds in re.findall(r"^== (.+): (\d+) s,", log, re.M)},
    }
    if (logs / f"{name}.xml").exists() and name == "run" and kind == "commands":
        cases = tree.parse(logs / f"{name}.xml").getroot().iter("testcase")
        slowest = sorted(((float(case.get("time")), case.get("name")) for case in cases), reverse=True)[:20]
        found["dearest"] = [{"test": test, "seconds": seconds} for seconds, test in slowest]
file.write_text(json.dumps(found, indent=1) + "\n")
for name in names:
    cost = found[kind][name]
    print(f"{name:6} {cost['cpu_minutes']:5.1f} CPU minutes, {cost['minutes']:5.1f} minutes")
for one in found.get("dearest", []):
    print(f"{one['seconds']:7.1f} s  {one['test']}")
PY

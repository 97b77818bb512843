#!/usr/bin/env bash
# Fuzz targets of all readers of files from elsewhere, under the address and undefined-behaviour sanitizers:
# each reads its corpus, then inputs made from it. Built by clang into build/fuzz.
#   usage  tests/fuzz/run.sh [--seconds N] [TARGET...]
#     --seconds N   so long a target, on one core; without it: 250 inputs, from a fixed seed
#     TARGET        tests/fuzz/TARGET.cpp; without one: all
#   exit   0 nothing was found; 1 an input that breaks a rule, kept in build/fuzz/found; 64 usage; 77 clang-14
#          is missing (ctest: skipped)
# Inputs that reach new code stay in build/fuzz/grown/TARGET, where a longer run goes on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/lib.sh"
cd "$root"

seconds='' targets=()
while (($#)); do
  case $1 in
    --seconds)
      [[ ${2:-} =~ ^[0-9]{1,6}$ ]] ||
        die "$exit_usage" "--seconds" "'${2:-}' is not a number" "tests/fuzz/run.sh --seconds 600 manifest"
      seconds=$((10#$2))
      shift
      ;;
    -h | --help)
      print_header "${BASH_SOURCE[0]}"
      exit 0
      ;;
    /*) ;; # ctest's build folder
    *)
      [[ -d tests/fuzz/corpus/$1 ]] ||
        die "$exit_usage" "$1" "no fuzz target" "one of: $(cd tests/fuzz/corpus && echo *)"
      targets+=("$1")
      ;;
  esac
  shift
done
if ((${#targets[@]} == 0)); then mapfile -t targets < <(cd tests/fuzz/corpus && printf '%s\n' *); fi

if ! have clang++-14 || ! have_libfuzzer; then
  say "skipped: clang-14 or its runtime, libclang-rt-14-dev, is missing"
  say "  fix: common/setup/setup.sh --dev"
  exit 77
fi

build_targets() {
  mkdir -p build/fuzz
  if [[ ! -f build/fuzz/build.ninja ]]; then
    cmake -S tests/fuzz -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 >build/fuzz/configure.log
  fi
  # ccache needs these permissions to cache a file that uses a precompiled header.
  CCACHE_BASEDIR=$root CCACHE_SLOPPINESS=pch_defines,time_macros \
    ninja -C build/fuzz -j "$(jobs_for_build)" "$@" >build/fuzz/build.log ||
    { grep -A 20 '^FAILED' build/fuzz/build.log; return 1; }
}

# fuzz TARGET: prints one line, or all output if it found something, or if it accepted no input or refused
# none, which would test nothing.
fuzz() {
  local target=$1 log=build/fuzz/$1.log status=0
  local -a options=(-timeout=60 -rss_limit_mb=1024 -malloc_limit_mb=64 -max_len=4096 -print_final_stats=1
    "-artifact_prefix=build/fuzz/found/$target-")
  local grown=build/fuzz/grown/$target # new inputs go into the first corpus
  if [[ -n $seconds ]]; then
    options+=("-max_total_time=$seconds")
  else
    options+=(-seed=1 -runs=250)
    grown=build/fuzz/short/$target # of this run alone: the next one begins as this one did
    rm -rf "$grown"
  fi
  mkdir -p build/fuzz/found "$grown"
  if [[ -f tests/fuzz/$target.dict ]]; then options+=("-dict=tests/fuzz/$target.dict"); fi
  ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
    "build/fuzz/$target" "${options[@]}" "$grown" "tests/fuzz/corpus/$target" \
    >"$log" 2>&1 </dev/null || status=$?
  if ((status)) || ! grep -qE '^[1-9][0-9]* taken, [1-9][0-9]* refused$' "$log"; then
    tail -n 60 "$log"
    say "$target: FAILED (exit $status); the input, if one was kept: build/fuzz/found/$target-*;" \
      "all output: $log"
    return 1
  fi
  say "$target: $(grep -E ' taken, .* refused$' "$log")"
}
export -f fuzz say
export seconds

locked build-fuzz build_targets "${targets[@]}"
at_once=$(cores)
if [[ -n $seconds ]]; then at_once=1; fi
# shellcheck disable=SC2016  # xargs's bash expands it
printf '%s\n' "${targets[@]}" | xargs -n 1 -P "$at_once" bash -c 'fuzz "$1"' fuzz || exit 1

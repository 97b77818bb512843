#!/usr/bin/env bash
# Sets up, builds, and runs what guards behaviour: minutes on two cores. What runs where: CONTRIBUTING.md;
# everything: tests/soak.sh.
#   usage  tests/run.sh [--all] [--cuda] [-R REGEX]
#     --all      also format, clang-tidy, files alone, planted faults, mutants and exercises as far as they
#                changed, and sanitizers
#     --cuda     also installs LibTorch with CUDA, compiles what the cuda preset has of its own, and runs one
#                program without a GPU
#     -R REGEX   only tests whose name matches (ctest -R), of whatever tier; not with --all. Everything is
#                built first all the same: many tests run programs that others build. To build one alone:
#                cmake --build build/cpu --target NAME
#   exit   0 all passed; 1 a stage failed (all stages run nevertheless); 64 usage; 69 something is missing
# The last line is always "N passed, N failed, N skipped".
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
cd "$root"

all=0 cuda=0 regex=''
while (($#)); do
  case $1 in
    --all) all=1 ;;
    --cuda) cuda=1 ;;
    -R)
      (($# >= 2)) || die "$exit_usage" "-R" "its regular expression is missing" "tests/run.sh -R comm"
      regex=$2
      shift
      ;;
    -h | --help)
      print_header "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die "$exit_usage" "$1" "unknown option of tests/run.sh" "tests/run.sh --help" ;;
  esac
  shift
done
if ((all)) && [[ -n $regex ]]; then
  die "$exit_usage" "--all -R $regex" "--all is every test, -R some of them" "leave one out"
fi

install() {
  local -a flags=(--quiet)
  ((all == 0)) || flags+=(--dev --curves)
  ((cuda == 0)) || flags+=(--keep-wheels)
  common/setup/setup.sh "${flags[@]}"
}

tier=run
((all == 0)) || tier=ci
with_transformers='real_model|checkpoint_python|torch_' # behind its installation, where there is one
left_out() { python3 -B tests/setup/tiers.py left-out "$tier" build/cpu; }

cpu_tests() {
  local -a which=(-R "$regex")
  if [[ -z $regex ]]; then which=(-E "$(left_out)"); fi
  if ((all && cuda)); then which[1]+="|$with_transformers"; fi
  if [[ $(ctest --test-dir build/cpu -N -L "^exercises$" "${which[@]}") != *"Total Tests: 0"* ]]; then
    made cpu "building the exercises" exercises
  fi
  run_ctest cpu "${which[@]}"
}

mkdir -p build
stage "setup" install
((cuda == 0)) || install_cuda_behind
stage "build, preset cpu" cpu_build
stage "tests, preset cpu" cpu_tests
if ((all)); then
  stage "format" check_format
  stage "statements by room" python3 -B tests/setup/house.py
  stage "single files" single_files
  stage "clang-tidy" common/setup/tidy.sh
  stage "address and undefined" sanitized cpu-asan core_tests -L core
  stage "threads" sanitized cpu-tsan threads_tests -L threads
  stage "loops for aarch64" loops_elsewhere
fi
if ((cuda)); then
  stage "setup of CUDA and transformers" install_cuda
  stage "objects, preset cuda" cuda_objects
fi
if ((all && cuda)); then stage "with transformers" run_ctest cpu -R "$with_transformers" -E "$(left_out)"; fi
finish

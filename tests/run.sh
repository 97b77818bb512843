#!/usr/bin/env bash
# Sets up, builds, and runs the tests of the cpu preset, all but the slow ones: at most 15 minutes on two cores after the first build.
#   usage  tests/run.sh [--all] [--cuda] [-R REGEX]
#     --all      also what is labelled slow (planted faults, mutants of pipedream), format, clang-tidy, and the sanitizers: 20 minutes more
#     --cuda     also installs LibTorch with CUDA, compiles and links the cuda preset, and runs what runs without a GPU
#     -R REGEX   only tests whose name matches (ctest -R), slow ones, too; not with --all. Everything is built first all the same:
#                many tests run programs that others build. To build one alone: cmake --build build/cpu --target NAME
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
if ((all)) && [[ -n $regex ]]; then die "$exit_usage" "--all -R $regex" "--all is every test, -R some of them" "leave one out"; fi

install() {
  local -a flags=(--quiet)
  ((all == 0)) || flags+=(--dev --curves)
  ((cuda == 0)) || flags+=(--keep-wheels)
  common/setup/setup.sh "${flags[@]}"
}

# LibTorch with CUDA is 2.6 GB: it is fetched while the cpu preset compiles. The stage of the same name waits for its lock,
# and takes up what a lost connection left.
install_cuda() { common/setup/setup.sh --quiet --cuda; }
install_cuda_behind() {
  setpriv --pdeathsig TERM -- common/setup/setup.sh --quiet --cuda >build/setup-cuda.log 2>&1 </dev/null &
}

cpu_tests() {
  if [[ -n $regex ]]; then
    run_ctest cpu -R "$regex"
  elif ((all)); then
    run_ctest cpu
  else
    say "left out as slow (tests/run.sh --all):$(ctest --test-dir build/cpu -N -L '^slow$' | sed -n 's/^ *Test *#[0-9]*://p' | tr -d '\n')"
    run_ctest cpu -LE '^slow$'
  fi
}

cuda_build() {
  made cuda "building the cuda preset" gpu_tests
}

# Without a GPU: what needs none runs, what needs one says so and ends with 69, and no test of the gpu label fails.
cuda_without_gpu() {
  local program status workload
  build/cuda/bin/doctor
  for program in build/cuda/bin/[0-9]*; do
    [[ -x $program ]] || continue
    "$program" --help >/dev/null
    gpu_visible && continue
    status=0
    workload=$(grep -o 'default-workload [^ ]*' "lessons/$(basename "$program")/run.sh" || say "- configs/tiny.json")
    "$program" --device cuda --workload "${workload#* }" >build/cuda/no_gpu.log 2>&1 || status=$?
    if ((status != exit_missing)); then
      cat build/cuda/no_gpu.log >&2
      say "$program --device cuda: exit $status without a GPU, $exit_missing was expected"
      return 1
    fi
  done
  run_ctest cuda -L gpu
}

mkdir -p build
stage "setup" install
((cuda == 0)) || install_cuda_behind
stage "build, preset cpu" cpu_build
stage "tests, preset cpu" cpu_tests
if ((all)); then
  stage "format" check_format
  stage "single files" single_files
  stage "clang-tidy" common/setup/tidy.sh build/single
  stage "address and undefined" sanitized cpu-asan core_tests -L core
  stage "threads" sanitized cpu-tsan threads_tests -L threads
fi
if ((cuda)); then
  stage "setup of CUDA" install_cuda
  stage "build, preset cuda" cuda_build
  stage "cuda without a GPU" cuda_without_gpu
fi
if ((all && cuda)); then
  stage "setup of transformers" common/setup/setup.sh --quiet --oracle
  stage "with transformers" run_ctest cpu -R 'real_models|checkpoint_python'
fi
finish

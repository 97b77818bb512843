#!/usr/bin/env bash
# Cross-compiles the lessons for aarch64, and runs tests of the rooms and two steps of lesson 00 under
# qemu-user.
#   usage  tests/aarch64.sh [--loops]
#     --loops  only what .ci/run asks where a loop written for one processor has changed: the loops' tests
#   exit   as tests/run.sh; the last line is "N passed, N failed, N skipped"
# Needs Debian 12; installs g++-12-aarch64-linux-gnu and qemu-user-static if root runs it. The arm64 packages
# and LibTorch for aarch64 come into .deps/aarch64, because development packages of two processors do not
# install beside each other.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
cd "$root"

loops=0
case "${1:-}" in
  '') ;;
  --loops) loops=1 ;;
  -h | --help)
    print_header "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *) die "$exit_usage" "$1" "unknown option of tests/aarch64.sh" "tests/aarch64.sh --help" ;;
esac
home=$deps/aarch64
tools=(g++-12-aarch64-linux-gnu qemu-user-static)
if ! { have aarch64-linux-gnu-g++-12 && have qemu-aarch64-static; }; then
  [[ $EUID == 0 ]] || die "$exit_missing" "${tools[*]}" "are not installed" "apt-get install ${tools[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${tools[@]}" >/dev/null
fi

# fill: the arm64 packages, resolved as for a new machine and unpacked, and the pinned LibTorch.
fill() {
  local file apt=$home.apt
  if [[ -f $home/.complete && $(<"$home/.complete") == "$(recipe_hash torch-cpu)" ]]; then return 0; fi
  rm -rf "$home" "$apt"
  mkdir -p "$home" "$apt"/{lists,cache/archives}/partial
  : >"$apt/status"
  cat >"$apt/conf" <<CONF
APT::Architecture "arm64";
APT::Architectures "arm64";
APT::Sandbox::User "root";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
CONF
  APT_CONFIG=$apt/conf apt-get update -qq
  APT_CONFIG=$apt/conf apt-get install -y -qq --download-only --no-install-recommends libspdlog-dev \
    libgtest-dev nlohmann-json3-dev libcxxopts-dev zlib1g-dev libxxhash-dev liburing-dev libopenmpi-dev
  for file in "$apt"/cache/archives/*.deb; do dpkg -x "$file" "$home"; done
  python3 -m pip install --quiet --no-compile --only-binary=:all: --no-deps --require-hashes \
    --target "$home/wheels" --python-version 3.11 --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_25_aarch64 --platform manylinux2014_aarch64 \
    -r common/setup/requirements-torch-cpu.txt
  rm -rf "$apt" "$home"/wheels/torch/lib/libtorch_{cuda,python}.so
  recipe_hash torch-cpu >"$home/.complete"
}

# What ctest itself starts under the emulator; programs that a test starts (also itself, in a death test) it
# does not. hf_weights_test lists /tmp, which qemu 7.2 refuses (ENOMEM), and activation_plan_test takes too
# long: matrix products are some 400 times slower.
tests() {
  GTEST_FILTER='-*DeathTest.*' run_ctest aarch64 -L "^(core|model)$" \
    -E '_mpi_|_process_|_python_|_command_|real_model|hf_weights|activation_plan|does_not_compile'
}
loop_tests() { run_ctest aarch64 -R '^(base|host_adam|optim|lr_schedule|model_parts)_test$'; }

two_steps() {
  OMP_NUM_THREADS=1 qemu-aarch64-static -L "$home" build/aarch64/bin/00_one_device --steps 2 \
    --workload configs/tiny.json --set model.layers=2 --set batch.global=4 --set data.validation_rows=4 \
    --strategy lessons/00_one_device/config.json --out build/aarch64/two_steps
}

mkdir -p build
stage setup locked setup fill
if ((loops)); then
  stage build made aarch64 "cross-compiling with $(jobs_for_build) compilers at once" \
    base_test base_rooms_tests model_tests
  stage "loops for aarch64" loop_tests
  finish
fi
stage build made aarch64 "cross-compiling with $(jobs_for_build) compilers at once" \
  core_tests model_tests 00_one_device
stage tests tests
stage "lesson 00" two_steps
finish

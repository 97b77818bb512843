#!/usr/bin/env bash
# Cross-compiles for aarch64 what has code of its own for a processor, and runs its tests under qemu-user.
#   usage  tests/aarch64.sh [--all]
#     --all   everything, all tests over the local communicator, and lesson 00 for 2 steps
#   exit   as tests/run.sh; the last line is "N passed, N failed, N skipped"
# Needs Debian, g++-12-aarch64-linux-gnu and qemu-user-static. The arm64 packages and LibTorch for aarch64 come
# into .deps/aarch64, because development packages of two processors do not install beside each other.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/setup/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
cd "$root"

all=0
case "${1:-}" in
  '') ;;
  --all) all=1 ;;
  -h | --help)
    print_header "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *) die "$exit_usage" "$1" "unknown option of tests/aarch64.sh" "tests/aarch64.sh --help" ;;
esac
home=$deps/aarch64
for tool in aarch64-linux-gnu-g++-12 qemu-aarch64-static; do
  have "$tool" || die "$exit_missing" "$tool" "is not installed" \
    "apt-get install g++-12-aarch64-linux-gnu qemu-user-static"
done

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
  python3 -m pip install --quiet --no-compile --only-binary=:all: --no-deps --require-hashes --target "$home" \
    --python-version 3.11 --platform manylinux_2_28_aarch64 --platform manylinux_2_25_aarch64 \
    --platform manylinux2014_aarch64 -r common/setup/requirements-torch-cpu.txt
  rm -rf "$apt"
  recipe_hash torch-cpu >"$home/.complete"
}

compile() {
  [[ -f build/aarch64/build.ninja ]] || cmake -G Ninja -S . -B build/aarch64 \
    --toolchain common/cmake/aarch64.cmake >build/aarch64-configure.log
  build aarch64 "cross-compiling" "$@"
}

mkdir -p build
stage setup locked setup fill
if ((all)); then
  stage "build, aarch64" compile all
  stage tests run_ctest aarch64 -LE 'mpi|gpu|processes|docs|setup|tools'
  stage "lesson 00" qemu-aarch64-static -L "$home" build/aarch64/bin/00_one_device --steps 2 \
    --workload configs/tiny.json --strategy lessons/00_one_device/config.json --out "$(mktemp -d)"
else
  stage "build, aarch64" compile base_test base_rooms_tests model_tests
  stage tests run_ctest aarch64 -R '^(base_test|lr_schedule_test|optim_test|host_adam_test|model_ops_test)$'
fi
finish

#!/usr/bin/env bash
# Installs what Stagecraft needs and what is not there yet: packages of Debian 12 or Ubuntu 24.04, and
# LibTorch (the wheel from the Python package index) into .deps/. Says first what and how much; a second call
# finds all there and returns at once; a call that was interrupted is taken up again.
#   usage  common/setup/setup.sh [--check] [--quiet] [--cuda] [--oracle] [--dev] [--curves] [--keep-wheels]
#     --check        names what is missing, installs nothing
#     --quiet        prints only what it installs, and errors
#     --cuda         also LibTorch with CUDA, cuDNN's frontend headers, and nvcc where no CUDA 13 toolkit is
#                    found
#     --oracle       also the Python packages that golden files are made with (.deps/oracle/bin/python)
#     --dev          also clang, clang-format, clang-tidy, black, shellcheck, strace, Slurm, matplotlib
#                    and chromium for figures and pages, and pyarrow, with which a test has `prepare` read
#                    parquet
#     --curves       also TensorBoard's package, with which lessons/curves.sh writes event files
#                    (.deps/curves)
#     --keep-wheels  keeps the downloaded files for the next call
#   exit   0 all is there; 64 usage; 69 something is missing and could not be installed (the fix is printed)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check=0 quiet=0 cuda=0 oracle=0 dev=0 curves=0 keep_wheels=0
for argument in "$@"; do
  case $argument in
    --check) check=1 ;;
    --quiet) quiet=1 ;;
    --cuda) cuda=1 ;;
    --oracle) oracle=1 cuda=1 ;;
    --dev) dev=1 ;;
    --curves) curves=1 ;;
    --keep-wheels) keep_wheels=1 ;;
    -h | --help)
      print_header "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die "$exit_usage" "$argument" "unknown option of setup.sh" "common/setup/setup.sh --help" ;;
  esac
done

# --- what is missing ----------------------------------------------------------------------------------------

# lacking HEADER PACKAGE...: the packages whose header neither the compiler finds nor CMake, in
# CMAKE_PREFIX_PATH. Without a compiler all of them.
lacking() {
  local prefix source='' packages=''
  local -a prefixes folders=()
  IFS=: read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do folders+=(-idirafter "$prefix/include"); done
  while (($#)); do
    printf -v source '%s#if !__has_include(<%s>)\n%s\n#endif\n' "$source" "$1" "$2"
    packages+=$2$'\n'
    shift 2
  done
  # shellcheck disable=SC2046,SC2086  # words
  { $(compiler) ${CXXFLAGS:-} -E -P -x c++ "${folders[@]}" - <<<"$source" 2>/dev/null || say "$packages"; } |
    { grep . || true; }
}

# The missing packages, judged by their content and not by name: a user who built a library from source needs
# no package.
missing_packages() {
  local needed
  needed=$(needed_packages)
  [[ -n $needed ]] || return 0
  say "$needed"
  # Builds work without these packages, so they are named only if another package is missing too.
  have ccache || say ccache
  lacking liburing.h liburing-dev
}

needed_packages() {
  # shellcheck disable=SC2046  # CXX may hold flags too
  have $(compiler) || say g++
  have cmake || say cmake
  have ninja || say ninja-build
  { have flock && have setpriv; } || say util-linux
  have python3 || say python3
  have_pip || say python3-pip
  { have mpirun && have ompi_info; } || say openmpi-bin
  have mpicc || say libopenmpi-dev
  missing_headers
  if ((dev)); then
    have clang-format-14 || say clang-format-14
    have clang-tidy-14 || say clang-tidy-14
    have clang++-14 || say clang-14
    have_libfuzzer || say libclang-rt-14-dev
    have shellcheck || say shellcheck
    have black || say black
    have git || say git
    have strace || say strace
    { have slurmctld && have munged; } || say slurm-wlm
    # docs/render.py draws plots with matplotlib; tests look at figures and pages with chromium, which Ubuntu
    # has only as a snap.
    have_matplotlib || say python3-matplotlib
    have chromium || have chromium-browser || grep -qs '^ID=ubuntu' /etc/os-release || say chromium
  fi
}

missing_headers() {
  lacking cxxopts.hpp libcxxopts-dev spdlog/spdlog.h libspdlog-dev gtest/gtest.h libgtest-dev \
    nlohmann/json.hpp nlohmann-json3-dev zlib.h zlib1g-dev xxhash.h libxxhash-dev
}

have_matplotlib() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import matplotlib' 2>/dev/null; then return; fi
  done
  return 1
}

# have_pip: pip is needed only while a wheel is missing.
have_pip() { ((${#parts[@]} == 0)) || [[ -n $(python_with_pip) ]]; }

# python_with_pip: a Python that has pip and for which torch has a wheel, python3 first, then the system's.
python_with_pip() {
  local python ask='import pip, sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))'
  for python in python3 /usr/bin/python3; do
    if have "$python" && "$python" -c "$ask" 2>/dev/null; then
      say "$python"
      return
    fi
  done
}

# missing_parts: the missing parts of .deps; torch-cuda serves the cpu preset, too.
missing_parts() {
  if [[ -z $(torch_for cpu) ]]; then
    ((cuda)) || say torch-cpu
  fi
  if ((cuda)); then
    [[ -n $(torch_for cuda) ]] || say torch-cuda
    [[ -n $(find_nvcc) ]] || say cuda-toolkit
    complete cudnn-frontend || lacking cudnn_frontend.h cudnn-frontend
  fi
  if ((oracle)); then complete oracle || say oracle; fi
  if ((dev)); then "$deps/prepare/bin/python" -c 'import pyarrow' 2>/dev/null || say prepare; fi
  if ((curves)); then complete curves || say curves; fi
}

# describe PART: prints the part's name; its download and disk space in MB; MB that its installation needs
# free.
describe() {
  case $1 in
    torch-cpu)
      text="LibTorch $torch_version for the CPU" download=545 disk=600 peak=2000
      if [[ $(uname -m) == aarch64 ]]; then download=435 disk=420; fi
      ;;
    torch-cuda) text="LibTorch $torch_version with CUDA, cuDNN and NCCL" download=2600 disk=3800 peak=6500 ;;
    cuda-toolkit) text="nvcc 13.0 (no CUDA 13 toolkit was found)" download=150 disk=450 peak=700 ;;
    cudnn-frontend) text="cuDNN's frontend headers" download=2 disk=3 peak=50 ;;
    oracle)
      text="transformers, safetensors, numpy, tiktoken for golden files" download=60 disk=250 peak=500
      ;;
    prepare) text="pyarrow, with which prepare reads parquet files" download=48 disk=150 peak=400 ;;
    curves)
      text="tensorboard, with which lessons/curves.sh writes event files" download=40 disk=120 peak=300
      ;;
  esac
}

[[ $(uname -m) =~ ^(x86_64|aarch64)$ ]] ||
  die "$exit_missing" "this machine" "$(uname -m); LibTorch's wheels are for x86_64 and aarch64" \
    "use such a machine"

mapfile -t parts < <(missing_parts)
mapfile -t packages < <(missing_packages)

# at_least COMMAND PACKAGE MINIMUM FLAG: refuses a version older than MINIMUM: of COMMAND, as it answers FLAG,
# or of PACKAGE, which apt-get would install.
at_least() {
  local version what=$1
  if [[ " ${packages[*]} " == *" $2 "* ]]; then
    version=$({ apt-cache policy "$2" || true; } 2>/dev/null | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}//p')
    what="apt-get's $2"
  else
    # shellcheck disable=SC2086  # words
    version=$($1 "$4" 2>/dev/null | grep -oEm 1 '[0-9]+(\.[0-9]+)+' || true)
  fi
  [[ ! $version =~ ^[0-9] || $(printf '%s\n%s\n' "$3" "$version" | sort -V | head -n 1) == "$3" ]] ||
    die "$exit_missing" "$what" "version $version, but $3 or newer is needed" \
    "use Debian 12, Ubuntu 24.04 or newer, or put a newer $1 first on PATH"
}

# refuse_early: refuses what would be refused after an installation, too; what is not known yet passes.
refuse_early() {
  local compiler mpicc headers part text download disk peak free place=$root
  compiler=$(compiler) mpicc=$(mpi_command mpicc)
  ! have "$mpicc" || is_open_mpi "$mpicc" ||
    die "$exit_missing" "$(command -v "$mpicc")" \
      "it is another MPI's, and Stagecraft is built with Open MPI" \
      "apt-get install libopenmpi-dev openmpi-bin, and their mpicc first on PATH"
  at_least "$compiler" g++ 12 -dumpfullversion
  at_least cmake cmake 3.25 --version
  if of_another_system "$compiler"; then
    headers=$(missing_headers | tr '\n' ' ')
    [[ -z $headers ]] || die "$exit_missing" "$compiler" "sees nothing that apt-get installs" \
      "unset CC CXX; or install for it what these packages hold: $headers"
  fi
  if [[ -d $deps ]]; then place=$deps; fi
  for part in "${parts[@]}"; do
    describe "$part"
    free=$(free_mib "$place")
    ((free >= peak)) ||
      die "$exit_missing" ".deps/$part" \
      "needs $peak MB free while it is installed ($disk MB afterwards); there are $free" \
      "free some space on the disk of $root"
  done
}
refuse_early

if ((${#parts[@]} == 0 && ${#packages[@]} == 0)); then
  ((quiet)) || say "setup: everything is there"
  exit 0
fi

# --- packages -----------------------------------------------------------------------------------------------

apt_line="apt-get update && apt-get install -y --no-install-recommends ${packages[*]}"

# root_prefix: the command that gives root's rights: empty for root, otherwise sudo, which asks for a password
# on a terminal only. Fails if neither works.
root_prefix() {
  if [[ $(id -u) == 0 ]]; then return 0; fi
  have sudo || return 1
  if sudo -n true 2>/dev/null; then
    say "sudo -n"
  elif [[ -t 0 && -t 2 ]]; then
    say "setup: sudo: $apt_line" >&2
    sudo -v && say sudo
  else
    return 1
  fi
}

print_missing() {
  local part text download disk peak
  if ((${#packages[@]})); then
    say "  packages  ${packages[*]}"
  fi
  for part in "${parts[@]}"; do
    describe "$part"
    say "  .deps/$part  $text: $download MB to download, $disk MB on disk"
  done
}

if ((check)); then
  say "setup: missing"
  print_missing
  flags=''
  for flag in cuda oracle dev curves; do
    if ((${!flag})); then flags+=" --$flag"; fi
  done
  say "  fix: common/setup/setup.sh$flags"
  exit "$exit_missing"
fi

install_packages() {
  local prefix sizes
  if ! have apt-get; then
    die "$exit_missing" "packages" "missing: ${packages[*]}, and there is no apt-get" \
      "install what these Debian packages hold with this system's own tool, then run this again"
  fi
  if ! prefix=$(root_prefix); then
    die "$exit_missing" "packages" "missing: ${packages[*]}; installing needs root" \
      "$(have sudo && printf 'sudo sh -c' || printf 'as root: sh -c') '$apt_line'"
  fi
  export DEBIAN_FRONTEND=noninteractive LC_ALL=C
  # shellcheck disable=SC2086  # the prefix is two words or none
  $prefix apt-get update -qq || die "$exit_missing" "apt-get update" "failed, its output is above" \
    "check the network and /etc/apt/sources.list*, then run common/setup/setup.sh again"
  refuse_early
  # shellcheck disable=SC2086
  sizes=$($prefix apt-get install --assume-no --no-install-recommends "${packages[@]}" 2>&1 |
    grep -E 'Need to get|After this' || true)
  say "setup: installing packages${sizes:+; ${sizes//$'\n'/ }}"
  # shellcheck disable=SC2086
  $prefix apt-get install -y -qq --no-install-recommends "${packages[@]}" >"$deps/apt.log" 2>&1 || {
    tail -n 20 "$deps/apt.log" >&2
    die "$exit_missing" "apt-get install" "failed, its last lines are above (all: .deps/apt.log)" \
      "on Ubuntu the packages are in 'universe' (add-apt-repository universe); \
otherwise mend what apt-get says, then run this again"
  }
}

# --- wheels -------------------------------------------------------------------------------------------------

pip() {
  # A user's own pip settings for --user or a mandatory environment would break pip --target.
  env PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 \
    PIP_ROOT_USER_ACTION=ignore \
    TMPDIR="$deps/tmp" "$python" -m pip "$@"
}

# announce PART: prints what will be fetched.
announce() {
  local text download disk peak
  describe "$1"
  say "setup: $text: downloading $download MB"
}

# fetch PART: puts the part's wheels into .deps/wheels; existing wheels are verified and not fetched again.
fetch() {
  announce "$1"
  pip download "${quietly[@]}" --no-cache-dir --no-deps --only-binary=:all: --require-hashes \
    -r "$root/common/setup/requirements-$1.txt" -d "$deps/wheels" || die "$exit_missing" ".deps/$1" \
    "the download failed, pip's message is above" \
    "check the network (a proxy goes into HTTPS_PROXY, a mirror into PIP_INDEX_URL) and the disk, \
then run this again: files that are complete are kept"
}

# unpack PART FOLDER: installs the fetched wheels of PART into FOLDER.
unpack() {
  pip install --quiet --no-compile --no-index --find-links "$deps/wheels" --no-deps --require-hashes \
    -r "$root/common/setup/requirements-$1.txt" --target "$2" || die "$exit_missing" ".deps/$1" \
    "unpacking failed, pip's message is above" "if the disk is full, free some space; then run this again"
}

# install_part PART: a complete part gets its final name in one step, with a stamp, so that an interrupted
# call leaves nothing that a later call would use.
install_part() {
  local part=$1 partial=$deps/$1.partial
  rm -rf "$partial"
  fetch "$part"
  unpack "$part" "$partial"
  case $part in
    torch-cpu) prune_torch_cpu "$partial" ;;
    cudnn-frontend)
      find "$partial" -mindepth 1 -maxdepth 1 ! -name include ! -name '*.dist-info' -exec rm -rf {} +
      ;;
    cuda-toolkit)  # nvcc and CMake expect the layout of NVIDIA's installer
      ln -s lib "$partial/nvidia/cu13/lib64"
      ln -s libcudart.so.13 "$partial/nvidia/cu13/lib/libcudart.so"
      ;;
  esac
  recipe_hash "$part" >"$partial/.complete"
  rm -rf "${deps:?}/$part"
  mv "$partial" "$deps/$part"
}

# prune_torch_cpu FOLDER: of the wheel's 1.2 GB the CPU build needs two libraries and the headers. Licences
# stay.
prune_torch_cpu() {
  find "$1" -mindepth 1 -maxdepth 1 ! -name torch ! -name nvidia ! -name '*.dist-info' -exec rm -rf {} +
  find "$1/torch" -mindepth 1 -maxdepth 1 ! -name include ! -name lib ! -name version.py -exec rm -rf {} +
  rm -rf "$1"/torch/lib/libtorch_{cuda,cuda_linalg,python,nvshmem}.so \
    "$1"/torch/lib/lib{c10_cuda,caffe2_nvrtc}.so
}

# install_oracle: the environment uses torch from torch-cuda, so that torch is on the disk only once.
install_oracle() {
  local home=$deps/oracle torch
  torch=$(torch_for cuda)
  rm -rf "$home"
  fetch oracle
  "$python" -m venv --without-pip "$home"
  unpack oracle "$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  dirname "$torch" \
    >"$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/stagecraft_torch.pth"
  "$home/bin/python" -c 'import torch, transformers, safetensors, tiktoken' ||
    die "$exit_missing" ".deps/oracle" "its packages cannot be imported" \
      "torch-cuda was perhaps installed with another Python: rm -r .deps/torch-cuda, then run this again"
  recipe_hash oracle >"$home/.complete"
}

# install_prepare: calls a script of its own, which users may also call who want only `prepare`.
install_prepare() {
  announce prepare
  TMPDIR=$deps/tmp PYTHON=$python "$root/common/data/prepare/setup_parquet.sh"
}

# install_curves: calls the script that lessons/curves.sh calls on its first use.
install_curves() {
  announce curves
  TMPDIR=$deps/tmp PYTHON=$python "$root/common/setup/venv.sh" curves tensorboard \
    "$root/common/setup/requirements-curves.txt" "3.11 to 3.14"
}

install_all() {
  local part
  # Another process may have installed the parts while this one waited for the lock.
  mapfile -t parts < <(missing_parts)
  mapfile -t packages < <(missing_packages)
  if ((${#parts[@]} + ${#packages[@]} == 0)); then return 0; fi
  say "setup: will install (packages with apt-get, the rest into .deps/ in this repository)"
  print_missing
  if ((${#packages[@]})); then install_packages; fi
  mapfile -t packages < <(missing_packages)
  refuse_early
  if ((${#parts[@]})); then
    python=$(python_with_pip)
    [[ -n $python ]] || die "$exit_missing" "python3" "has no pip, or is not one of 3.10 to 3.14" \
      "apt-get install python3 python3-pip, or put such a Python first on PATH"
    mkdir -p "$deps/tmp" "$deps/wheels"
    for part in "${parts[@]}"; do
      case $part in
        oracle | prepare | curves) "install_$part" ;;
        *) install_part "$part" ;;
      esac
    done
    rm -rf "$deps/tmp"
    ((keep_wheels)) || rm -rf "$deps/wheels"
  fi
  say "setup: done"
}

quietly=()
if ((quiet)); then quietly=(--quiet); fi
mkdir -p "$deps"
locked setup install_all

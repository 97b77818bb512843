#!/usr/bin/env bash
# Makes .deps/PART a private Python environment with the packages that a file of pinned hashes names. What is
# there is replaced.
#   usage  common/setup/venv.sh PART PACKAGE REQUIREMENTS PYTHONS
#     PACKAGE  the one that a message names
#     PYTHONS  the versions that have wheels ("3.10 to 3.14"); PYTHON in the environment names one (python3)
#   exit   0 it is there, with the stamp .complete; 69 python3, its pip or the network is missing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

part=$1 package=$2 requirements=$3 pythons=$4
venv=$deps/$part python=${PYTHON:-python3}

# Without a pip of its own, because Debian's python3 makes one only with python3-venv.
output=$("$python" -m venv --clear --without-pip "$venv" 2>&1) ||
  die "$exit_missing" "$python -m venv" "$(head -n 1 <<<"$output")" \
    "apt-get install python3 python3-pip, then run this again"
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
output=$(PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
  "$python" -m pip install --quiet --no-compile --only-binary :all: --no-deps --require-hashes \
  -r "$requirements" --target "$packages" 2>&1) ||
  die "$exit_missing" "pip install $package" "$(tail -n 1 <<<"$output")" \
    "allow access to PyPI and use Python $pythons with pip, then run this again"
sha256sum <"$requirements" | cut -d' ' -f1 >"$venv/.complete"
say "$package is installed: $venv"

#!/usr/bin/env bash
# shellcheck disable=SC2016  # what stand-ins expand, they expand when they run
# Tests what setup.sh says and does if something is missing; apt-get, sudo and pip are stand-ins.
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
on_its_own "$repo"
basic_tools
gxx=$(command -v g++) script=$(command -v script)
shim uname <<<'[[ $1 == -s ]] && echo Linux || echo x86_64'
PATH=$shims
setup() { run "$repo/common/setup/setup.sh" "$@"; }
log=$sandbox/log
export log
fresh() { rm -rf "$repo/.deps" "$log"; : >"$log"; }

# --- packages -----------------------------------------------------------------------------------------------
fresh
setup --nonsense
check "unknown option" equal "$code $err" "64 error: --nonsense: unknown option of setup.sh
  fix: common/setup/setup.sh --help"

packages="g++ cmake ninja-build python3 python3-pip openmpi-bin libopenmpi-dev libcxxopts-dev libspdlog-dev"
packages+=" libgtest-dev nlohmann-json3-dev zlib1g-dev libxxhash-dev ccache liburing-dev"
setup --check
check "--check names what is missing" equal "$code $out" "69 setup: missing
  packages  $packages
  .deps/torch-cpu  LibTorch 2.11.0 for the CPU: 545 MB to download, 600 MB on disk
  fix: common/setup/setup.sh"
check "--check makes nothing" test ! -e "$repo/.deps"

line="apt-get update && apt-get install -y --no-install-recommends $packages"
shim id <<<'echo 1000'
shim apt-get <<<'echo "apt-get $*" >>"$log"'
setup
check "neither root nor sudo: the line, exit 69" equal "$code $err" \
  "69 error: packages: missing: $packages; installing needs root
  fix: as root: sh -c '$line'"
check "sizes come first" contains "$out" "545 MB to download"
shim sudo <<<'exit 1'
setup
check "sudo that asks for a password: the line, exit 69" equal "$code $err" \
  "69 error: packages: missing: $packages; installing needs root
  fix: sudo sh -c '$line'"
check "apt-get was not called" equal "$(<"$log")" ""
if [[ -n $script ]]; then # which gives a terminal
  shim sudo <<<'case $1 in -n) exit 1 ;; -v) exit "${SUDO:-0}" ;; *) echo sudo >>"$log"; "$@" ;; esac'
  SHELL=$BASH run "$script" -qec "$repo/common/setup/setup.sh" "$sandbox/typescript"
  check "on a terminal sudo may ask, and what for stands above" contains "$out" "setup: sudo: $line"
  check "and runs it" contains "$(<"$log")" "sudo
apt-get install -y"
  : >"$log"
  SHELL=$BASH SUDO=1 run "$script" -qec "$repo/common/setup/setup.sh" "$sandbox/typescript"
  check "a wrong password: the line, exit 69" contains "$code $out" "69 "
  check "as above" contains "$out$(<"$log")" "  fix: sudo sh -c '$line'"
fi

shim sudo <<<'[[ $1 == -n ]] && shift; [[ $1 == true ]] || { echo sudo >>"$log"; "$@"; }'
setup
check "with sudo: update, sizes, install" equal "$(<"$log")" "sudo
apt-get update -qq
sudo
apt-get install --assume-no --no-install-recommends $packages
sudo
apt-get install -y -qq --no-install-recommends $packages"
shim id <<<'echo 0'
shim apt-get <<<'echo "apt-get $*" >>"$log"; [[ $1 == update ]]'
fresh
setup
check "a failing install" contains "$code $err" "69 error: apt-get install: failed"
check "as root, without sudo" equal "$(head -n 1 "$log")" "apt-get update -qq"
shim apt-get <<<'exit 100'
setup
check "no network for apt-get" contains "$code $err" "69 error: apt-get update: failed"

# --- wheels -------------------------------------------------------------------------------------------------
for tool in ninja mpirun ompi_info; do shim $tool <<<'exit 0'; done
shim mpicc <<<'echo "mpicc: ${MPI:-Open MPI 4.1.4} (Language: C)"'
shim g++ <<<'[[ $1 != -dumpfullversion ]] || echo 12.2.0' # and it finds every header
shim cmake <<<'echo cmake version 3.25.1'
# A stand-in for Python and pip; FAIL names the step at which the "network" or machine fails.
shim python3 <<'EOF'
case "$1 ${2:-} ${3:-}" in
  "-m venv --clear")                      # an environment whose pyarrow is what lies in its folder `site`
    echo venv >>"$log"
    mkdir -p "$5/bin"
    printf '%s\n' "#!$BASH" "[[ \$2 != *sysconfig* ]] || { echo $5/site; exit; }" "[[ -e $5/site/torch ]]" \
      >"$5/bin/python"
    chmod +x "$5/bin/python"
    exit 0
    ;;
  "-c "*) exit 0 ;;                       # pip is there, the version fits
  "- "*) exit 0 ;;                        # no torch of its own
  "-m pip download") step=download ;;
  "-m pip install") step=install ;;
  *) exit 9 ;;
esac
echo "$step $PIP_USER $TMPDIR" >>"$log"
while (($#)); do
  case $1 in
    -d) mkdir -p "$2"; echo wheel >"$2/torch-2.11.0.whl" ;;
    --target) target=$2 ;;
    --require-hashes) hashes=1 ;;
  esac
  shift
done
((hashes)) || exit 8
[[ $step != "${FAIL:-}" ]] || { echo "ERROR: connection broken" >&2; exit 1; }
if [[ $step == install ]]; then
  mkdir -p "$target/torch/include" "$target/torch/lib" "$target/torch/nn"
  touch "$target/torch/version.py"
  [[ ${FAIL:-} != killed ]] || kill -KILL $PPID
  touch "$target"/torch/lib/lib{torch_cpu,c10,torch_cuda,torch_python}.so
fi
EOF
deps=$repo/.deps
steps() { cut -d' ' -f1 "$log" | tr '\n' ' '; }

fresh
FAIL=download setup
check "a lost connection" equal "$code" 69
check "is said" contains "$err" "error: .deps/torch-cpu: the download failed, pip's message is above"
check "pip's own words are there" contains "$err" "ERROR: connection broken"
check "its fix" contains "$err" "run this again: files that are complete are kept"
check "what came through is kept" test -f "$deps/wheels/torch-2.11.0.whl"
check "nothing half lies under its name" test ! -e "$deps/torch-cpu"
FAIL=install setup
check "unpacking fails" equal "$code" 69
check "is said too" contains "$err" "error: .deps/torch-cpu: unpacking failed"
: >"$log"
FAIL=killed setup
check "killed while it unpacks" test "$code" -ne 0
check "a half part stays under its other name" test -d "$deps/torch-cpu.partial" -a ! -e "$deps/torch-cpu"
setup --check
check "and counts as missing" equal "$code" 69
: >"$log"
setup
check "the next call takes it up" equal "$code $err$(steps)" "0 download install "
check "the part is there" test -f "$deps/torch-cpu/torch/lib/libtorch_cpu.so"
check "what a CPU build does not need is gone" \
  test ! -e "$deps/torch-cpu/torch/lib/libtorch_cuda.so" -a ! -e "$deps/torch-cpu/torch/nn"
check "no wheel, no half part, no temporary folder stays" equal "$(cd "$deps" && echo *)" "torch-cpu"
check "a user's pip settings do not matter" contains "$(<"$log")" "install 0 $deps/tmp"
: >"$log"
setup
check "the second call does nothing" equal "$code $out $(steps)" "0 setup: everything is there "
MPI=MPICH setup --check
check "but another MPI is said" equal "$code $err" \
  "69 error: $shims/mpicc: it is another MPI's, and Stagecraft is built with Open MPI
  fix: apt-get install libopenmpi-dev openmpi-bin, and their mpicc first on PATH"
setup --quiet
check "and can be silent" equal "$code $out$err" "0 "
echo "# another pin" >>"$repo/common/setup/requirements-torch-cpu.txt"
setup --check
check "other pins make it incomplete" equal "$code" 69
setup --keep-wheels
check "it is replaced" equal "$code $(steps)" "0 download install "
check "--keep-wheels" test -f "$deps/wheels/torch-2.11.0.whl"

# --- pyarrow, with --dev ------------------------------------------------------------------------------------
mkdir -p "$repo/common/data/prepare"
cp "$here"/../../common/data/prepare/{setup_parquet.sh,requirements-parquet.txt} "$repo/common/data/prepare"
for tool in clang-format-14 clang-tidy-14 shellcheck black git strace slurmctld munged chromium; do
  shim $tool <<<'exit 0'
done
setup --check --dev
check "--dev needs clang and its libFuzzer" contains "$code $out" "69 setup: missing
  packages  clang-14 libclang-rt-14-dev ccache"
shim clang++-14 <<<'echo libclang_rt.fuzzer-x86_64.a' # as it answers where there is none
setup --check --dev
check "a clang without libFuzzer" contains "$code $out" "69 setup: missing
  packages  libclang-rt-14-dev ccache"
shim clang++-14 <<<"echo $sandbox"
setup --check --dev
check "--dev needs pyarrow" equal "$code $out" "69 setup: missing
  .deps/prepare  pyarrow, with which prepare reads parquet files: 48 MB to download, 150 MB on disk
  fix: common/setup/setup.sh --dev"
: >"$log"
FAIL=install setup --dev
check "pyarrow does not come" contains "$code $err" "69 error: pip install pyarrow: ERROR: connection broken
  fix: allow access to PyPI and use Python 3.10 to 3.14 with pip, then run this again"
setup --check --dev
check "its environment without it counts as missing" equal "$code" 69
: >"$log"
setup --dev
check "--dev installs it" equal "$code $err$(steps)" "0 venv install "
check "beside a user's pip settings" contains "$(<"$log")" "install 0 $deps/tmp"
check "where prepare looks for it" test -e "$deps/prepare/site/torch"
: >"$log"
setup --dev
check "and the second call does nothing" equal "$code $out $(steps)" "0 setup: everything is there "

# --- tensorboard, with --curves or on the first use of lessons/curves.sh ------------------------------------
setup --check --curves
check "--curves needs tensorboard" equal "$code $out" "69 setup: missing
  .deps/curves  tensorboard, with which lessons/curves.sh writes event files: \
40 MB to download, 120 MB on disk
  fix: common/setup/setup.sh --curves"
FAIL=install setup --curves
check "tensorboard does not come" contains "$code $err" \
  "69 error: pip install tensorboard: ERROR: connection broken
  fix: allow access to PyPI and use Python 3.11 to 3.14 with pip, then run this again"
FAIL=killed setup --curves
setup --check --curves
check "half an environment counts as missing" equal "$code" 69
: >"$log"
setup --curves
check "--curves installs it" equal "$code $err$(steps)" "0 venv install "
check "beside a user's pip settings, too" contains "$(<"$log")" "install 0 $deps/tmp"
: >"$log"
setup --curves
check "and the second call does nothing, either" equal "$code $out $(steps)" "0 setup: everything is there "
cp "$here/../../lessons/curves.sh" "$repo/lessons"
run "$repo/lessons/curves.sh" some-run
check "curves.sh takes what is there" equal "$code $out$err$(steps)" "0 "
echo "# another pin" >>"$repo/common/setup/requirements-curves.txt"
FAIL=install run "$repo/lessons/curves.sh" some-run
check "other pins are installed on its first use" contains "$code $err" "69 error: pip install tensorboard"
: >"$log"
run "$repo/lessons/curves.sh" some-run
check "and then it starts" equal "$code $(steps)${out%%:*}" "0 venv install first use"
setup --check --curves
check "setup.sh has nothing left to do" equal "$code" 0
: >"$log"
run "$repo/lessons/curves.sh" some-run --wandb folder
check "an offline run alone takes python3" equal "$code$(steps)" 9

fresh
shim flock <<<'exit 71' # as util-linux says of a file system without locks
setup
check "without locks it is installed all the same" equal "$code $(steps)" "0 download install "
ln -sf "$(PATH=/usr/bin:/bin command -v flock)" "$shims/flock"

# --- the machine --------------------------------------------------------------------------------------------
fresh
shim df <<<'printf "Filesystem 1M-blocks Used Available\ndisk 1 1 1999\n"'
setup
check "a full disk" contains "$code $err" \
  "69 error: .deps/torch-cpu: needs 2000 MB free while it is installed (600 MB afterwards); there are 1999"
check "nothing was fetched" equal "$(steps)" ""
ln -sf "$(PATH=/usr/bin:/bin command -v df)" "$shims/df"
shim g++ <<<'[[ $1 != -dumpfullversion ]] || echo 11.4.0'
setup
check "an old compiler" equal "$code $out$err" "69 error: g++: version 11.4.0, but 12 or newer is needed
  fix: use Debian 12, Ubuntu 24.04 or newer, or put a newer g++ first on PATH"
rm "$shims/g++"
shim apt-cache <<<'echo "$2:"; echo "  Candidate: 4:11.2.0-1ubuntu1"'
setup
check "none, and apt-get has an old one: refused before it is installed" contains "$code $out$err" \
  "69 error: apt-get's g++: version 11.2.0-1ubuntu1, but 12 or newer is needed"
check "nothing was installed or fetched" equal "$(<"$log")" ""
rm "$shims/apt-cache"
shim g++ <<<'[[ $1 != -dumpfullversion ]] || echo 13.2.0'
MPI=MPICH run "$repo/common/setup/doctor.sh"
check "doctor: another MPI's compiler" contains "$code $out" "  MPI compiler       missing
                     fix: mpicc on PATH is another MPI's; \
apt-get install libopenmpi-dev, or put Open MPI's first"
shim cmake <<<'echo cmake version 3.22.1'
setup
check "an old CMake" contains "$code $err" "69 error: cmake: version 3.22.1, but 3.25 or newer is needed"
shim cmake <<<'echo cmake version 3.25.1'
for processor in aarch64 riscv64; do
  shim uname <<<"echo $processor"
  setup --check
  check "$processor" contains "$code $out$err" "69 $(if [[ $processor == aarch64 ]]; then
    echo "setup: missing"
  else
    echo "error: this machine: riscv64;"
  fi)"
done
shim uname <<<'echo x86_64'
OSTYPE=darwin23 setup
check "a Mac" equal "$code $err" "69 error: this machine: its system is darwin23, and the lessons need Linux
  fix: a container: docs/containers.md"

# --- compilers and headers, wherever they are ---------------------------------------------------------------
# This g++ finds no header but where it is told to look.
shim g++ <<<'[[ $1 != -dumpfullversion ]] || { echo 12.2.0; exit; }
[[ $1 == -print-sysroot ]] && echo "${SYSROOT:-}" || exec '"$gxx"' -nostdinc "$@"'
setup --check
headers="libcxxopts-dev libspdlog-dev libgtest-dev nlohmann-json3-dev zlib1g-dev libxxhash-dev"
check "no header" contains "$out" "  packages  $headers ccache liburing-dev"
mkdir -p "$sandbox"/{module,spack,flags}/include/{spdlog,gtest,nlohmann}
touch "$sandbox"/module/include/{cxxopts.hpp,spdlog/spdlog.h} "$sandbox"/flags/include/{zlib.h,xxhash.h} \
  "$sandbox"/spack/include/{gtest/gtest.h,nlohmann/json.hpp}
CPATH=$sandbox/module/include CMAKE_PREFIX_PATH=$sandbox/none:$sandbox/spack \
  CXXFLAGS="-O2 -I$sandbox/flags/include" setup --check
check "headers of a module, of spack and of flags" equal "$out" "setup: missing
  .deps/torch-cpu  LibTorch 2.11.0 for the CPU: 545 MB to download, 600 MB on disk
  fix: common/setup/setup.sh"
CXX="g++ -I$sandbox/module/include" setup --check
check "CXX with a flag" contains "$out" "  packages  libgtest-dev nlohmann-json3-dev "
SYSROOT=/conda CXX=g++ setup
check "a compiler that is asked for and sees nothing of the system: refused first" equal "$code $out$err" \
  "69 error: g++: sees nothing that apt-get installs
  fix: unset CC CXX; or install for it what these packages hold: $headers "
SYSROOT=/conda setup --check
check "one that is only first on PATH: the system's is missing" contains "$out" "  packages  g++ $headers"
mkdir "$sandbox/system"
sed 's/SYSROOT/NONE/' "$shims/g++" >"$sandbox/system/g++"
chmod +x "$sandbox/system/g++"
SYSROOT=/conda CPATH=$sandbox/module/include setup --check
check "and is taken where it is there" contains "$out" "  packages  libgtest-dev nlohmann-json3-dev "
shim g++ <<<'[[ $1 != -dumpfullversion ]] || echo 13.2.0'

run "$repo/common/setup/doctor.sh"
check "doctor: 69 and the fix where LibTorch is missing" contains "$code $out" "  for cpu            missing
                     fix: common/setup/setup.sh"
run "$repo/common/setup/doctor.sh" extra
check "doctor takes no argument" equal "$code" 64
finish_test

# shellcheck shell=bash disable=SC2154
# What tests/run.sh and tests/soak.sh share: stages with their time, ctest with its counts. Sourced after
# common/setup/lib.sh.

passed=0 failed=0 skipped=0 # test cases of all stages, as ctest counts them
failed_stages=()
times=()

# stage NAME COMMAND...: runs a stage and notes its time and whether it failed. Later stages still run, unless
# they need this one (setup, a build).
stage() {
  local name=$1 begin=$SECONDS status
  shift
  say "== $name"
  # A subshell of its own keeps `set -e` alive inside; counts come back through a file.
  set +e
  (
    set -e
    "$@"
  )
  status=$?
  set -e
  collect_counts
  times+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$name")")
  # A stage's time is printed at once, too, since a run that is cut off prints no last lines.
  say "== $name: $((SECONDS - begin)) s, $SECONDS s since the start"
  if ((status == 0)); then return 0; fi
  failed_stages+=("$name")
  say "== $name: FAILED (exit $status)"
  case $name in
    setup | "build, preset cpu") finish "$status" ;;
  esac
}

counts_file=build/ctest-counts

cpu_build() { made cpu "building everything with $(jobs_for_build) compilers at once" all; }

collect_counts() {
  local a b c
  [[ -f $counts_file ]] || return 0
  while read -r a b c; do
    passed=$((passed + $(number "$a" 0))) failed=$((failed + $(number "$b" 0))) \
      skipped=$((skipped + $(number "$c" 0)))
  done <"$counts_file"
  rm -f "$counts_file"
}

# run_ctest PRESET ARGUMENTS...: runs ctest; prints the output of failed tests and a line for each skipped
# one.
run_ctest() {
  local preset=$1 xml status=0
  shift
  xml=$root/build/$preset/ctest.xml
  rm -f "$xml"
  # </dev/null: mpirun would read a terminal. OMP_NUM_THREADS: two tests run at once.
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} ctest --test-dir "build/$preset" -j "$(cores)" --output-on-failure \
    --no-tests=error --output-junit "$xml" "$@" </dev/null >"build/$preset/ctest.log" 2>&1 || status=$?
  sed -n '/tests passed/,$p' "build/$preset/ctest.log" | grep -v '^$' || true
  if ((status)); then
    # A failed test's output is cut to what failed; a test that began and did not end shows where it hung.
    awk '/^\[ RUN /{begun = $0; next} /^\[       OK/{begun = ""; next}
      /^ +Start +[0-9]+|\. +Passed |^\[-----|^$/{next}
      begun != ""{print begun; begun = ""} {print}' "build/$preset/ctest.log" | head -n 400 || true
    say "all output: build/$preset/ctest.log"
  fi
  [[ -f $xml ]] || return "$status"
  count_of() { sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$xml" | head -n 1; }
  local tests fails skips
  if [[ $preset == cpu ]] && grep -q '(Skipped)' "build/$preset/ctest.log"; then
    say "skipped: what is not installed here;" \
      "common/setup/setup.sh --dev --curves --oracle installs all of it"
  fi
  tests=$(count_of tests) fails=$(count_of failures) skips=$(($(count_of skipped) + $(count_of disabled)))
  say "$((tests - fails - skips)) $fails $skips" >>"$counts_file"
  return "$status"
}

# own_files PATTERN...: files that git knows or would add; none outside a work tree.
own_files() {
  { git ls-files -co --exclude-standard -- "$@" 2>/dev/null || true; } |
    while IFS= read -r file; do [[ ! -f $file ]] || say "$file"; done
}

# A file that lacks an include which its neighbour has fails only if compiled alone: files changed since the
# last soak, or all with --all. CMake runs again if a list of sources has changed.
single_files() {
  made single "configuring" build.ninja
  python3 -B tests/setup/single_files.py "$@"
}

# check_format [--all]: checks Python only in files changed since the last soak, because black is slow.
check_format() {
  local -a files scripts
  mapfile -t files < <(own_files '*.h' '*.cpp' '*.cu' '*.cuh')
  ((${#files[@]})) || { say "no file to check (not a git work tree)"; return 0; }
  clang-format-14 --version | head -n 1
  printf '%s\0' "${files[@]}" | xargs -0 -n 20 -P "$(cores)" clang-format-14 --dry-run -Werror ||
    { say "fix: clang-format-14 -i on the files above"; return 1; }
  say "${#files[@]} files"
  mapfile -t scripts < <(own_files '*.py' |
    if [[ ${1:-} == --all ]]; then cat; else xargs python3 -B tests/setup/tiers.py changed file; fi)
  ((${#scripts[@]} == 0)) || black --quiet --check --diff "${scripts[@]}" || { say "fix: black ."; return 1; }
  say "${#scripts[@]} of Python"
  mapfile -t scripts < <(own_files '*.sh' '*.sbatch' .ci/run)
  shellcheck "${scripts[@]}"
  say "${#scripts[@]} scripts"
  # Lines that clang-format and black leave too long are strings, and only addresses cannot be broken.
  mapfile -t files < <(own_files '*.py' '*.sh' '*.sbatch' .ci/run '*.cmake' '*CMakeLists.txt')
  if LC_ALL=C.UTF-8 grep -nE '^.{111}' "${files[@]}" | grep -v '://'; then
    say "fix: at most 110 columns in the lines above"
    return 1
  fi
}

# sanitized PRESET TARGET CTEST-ARGUMENTS...: builds a target with sanitizers and runs its tests.
sanitized() {
  local preset=$1 target=$2
  shift 2
  made "$preset" "building $target with $preset" "$target"
  # Open MPI and torch never free some of their memory, and were built without sanitizers, so their leaks and
  # races are not reported.
  ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
    TSAN_OPTIONS="halt_on_error=1:suppressions=$root/tests/setup/tsan.supp" run_ctest "$preset" "$@"
}

# install_cuda: LibTorch with CUDA is 2.6 GB and is fetched while the cpu preset compiles. The stage of the
# same name waits for its lock and resumes after a lost connection. It also brings transformers, which no test
# may find half installed.
install_cuda() { common/setup/setup.sh --quiet --oracle; }
install_cuda_behind() {
  setpriv --pdeathsig TERM -- common/setup/setup.sh --quiet --cuda >build/setup-cuda.log 2>&1 </dev/null &
}

# cuda_without_gpu: without a GPU every program of the cuda preset must say so and end with 69.
cuda_without_gpu() {
  local program status workload
  build/cuda/bin/doctor
  for program in build/cuda/bin/[0-9]*; do
    [[ -x $program ]] || continue
    "$program" --help >/dev/null
    gpu_visible && continue
    status=0
    workload=$(grep -o 'default-workload [^ ]*' "lessons/$(basename "$program")/run.sh" ||
      say "- configs/tiny.json")
    "$program" --device cuda --workload "${workload#* }" >build/cuda/no_gpu.log 2>&1 || status=$?
    if ((status != exit_missing)); then
      cat build/cuda/no_gpu.log >&2
      say "$program --device cuda: exit $status without a GPU, $exit_missing was expected"
      return 1
    fi
  done
}

# cuda_objects: builds the objects for a GPU and one program; GPU tests are only compiled, for their errors.
cuda_objects() {
  made cuda "building what the cuda preset has of its own" gpu_libraries doctor 01_data_parallel
  cuda_without_gpu
  python3 -B tests/setup/single_files.py --cuda
}

# cuda_all: builds the whole cuda preset and runs all tests with the label gpu.
cuda_all() {
  made cuda "building the cuda preset" gpu_tests
  cuda_without_gpu
  run_ctest cuda -L gpu
}

# Loops that are written for a processor's vectors, and what compiles them for another one.
# shellcheck disable=SC2034
processor_code=(common/base/clones.h common/cmake/aarch64.cmake common/model/cpu_kernels.cpp
  common/optim/grad_norm.cpp common/optim/host_adam.cpp tests/aarch64.sh)
# loops_elsewhere: their tests on the other processor, if one of these files has changed since the last soak.
loops_elsewhere() {
  [[ -z $(python3 -B tests/setup/tiers.py changed aarch64 "${processor_code[@]}") ]] ||
    tests/aarch64.sh --loops
}

# finish [EXIT]: times, failed stages, and the line of counts.
finish() {
  local status=${1:-0} line
  say ""
  for line in "${times[@]}"; do say "$line"; done
  if ((${#failed_stages[@]})); then
    printf 'failed: %s\n' "${failed_stages[@]}"
    ((status)) || status=1
  fi
  say "$passed passed, $failed failed, $skipped skipped"
  exit "$status"
}

#!/usr/bin/env bash
# Builds docs/explore/index.html: the page's template with the project's own C++ in it, compiled to
# WebAssembly.
#   usage  docs/explore/build.sh [--page-only]     needs Debian's emscripten (3.1.6), nlohmann-json3-dev,
#          libfmt-dev, libspdlog-dev, libcxxopts-dev
#     --page-only  only the template is put around the engine of the page that is there
#   exit   0; 1 something does not compile; 69 emscripten is missing
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/lib.sh"
cd "$root"
build=build/explore
command -v em++ >/dev/null || die 69 "emscripten" "em++ is not there" "apt-get install emscripten"
mkdir -p "$build/include"
for header in nlohmann fmt spdlog cxxopts.hpp; do
  ln -sfn "/usr/include/$header" "$build/include/$header"
done

# The rooms that a plan, choose and pipedream need, each as one source, like CMake's unity builds.
rooms() {
  echo input common/input/*.cpp
  echo base common/base/{command_words,flag_text,mesh,text}.cpp
  echo config common/config/*.cpp
  echo layout common/model/{activation_plan,context_cut,context_plan,param_layout,part_plan}.cpp
  echo watch common/watch/{comm_op,contents,pass}.cpp
  echo data common/data/{loader_plan,sampler}.cpp
  echo plans common/strategy/{group_plan,plans,state_plan}.cpp common/offload/host_plan.cpp
  echo pipeline common/pipeline/{share,slots,split,stage_plan,steps}.cpp
  echo records common/records/{plan_json,report}.cpp
  echo run common/run/{planning,surroundings}.cpp
  echo pipedream pipedream/*.cpp | sed 's| pipedream/main.cpp||'
  echo command \
    pipedream/command/{command,flags,text,timeline_text,svg,simulate_command,check_command,draw_command}.cpp
  echo command_more pipedream/command/{compare,partition,explain,exercise}_command.cpp
  echo lessons lessons/plans.cpp lessons/*/*_plan.cpp
  echo lessons_more "$(grep -o ' PLAN [a-z0-9_. ]*' lessons/*/CMakeLists.txt | while read -r list _ files; do
    for file in $files; do printf '%s ' "${list%/*}/$file"; done
  done)"
  echo choose lessons/choose/*.cpp | sed -E 's# lessons/choose/(main|measured_file).cpp##g'
  echo engine docs/explore/engine.cpp
}

flags=(-std=c++20 -O2 -fwasm-exceptions -DFMT_HEADER_ONLY -DSPDLOG_FMT_EXTERNAL -DSPDLOG_HEADER_ONLY
  -DCXXOPTS_NO_REGEX -include docs/explore/libcxx.h -I. -isystem "$build/include"
  -Wno-unused-command-line-argument)
# compile ROOM SOURCES...: compiles to build/explore/ROOM.o, unless that is newer than everything it was made
# of.
compile() {
  local room=$1 object=$build/$1.o newest
  shift
  printf '#include "%s"\n' "$@" >"$build/$room.new.cpp"
  if [[ -s $object && -s $build/$room.d ]] && cmp -s "$build/$room.new.cpp" "$build/$room.cpp"; then
    newest=$(sed 's/^[^:]*://; s/\\$//' "$build/$room.d" | tr -s ' \n' '\n' | grep . |
      xargs -r ls -t 2>/dev/null | head -1 || true)
    [[ -n $newest && $object -nt $newest ]] && return 0
  fi
  mv "$build/$room.new.cpp" "$build/$room.cpp"
  em++ "${flags[@]}" -MMD -MF "$build/$room.d" -c "$build/$room.cpp" -o "$object"
}

# sources: lists the files that the page is made of; the page records their hashes.
sources() {
  { cat "$build"/*.d | tr -s ' \\\n' '\n' | grep -E '^(\./)?(common|lessons|pipedream|docs)/' | sed 's|^\./||'
    printf '%s\n' docs/explore/{template.html,build.sh,libcxx.h} common/records/page/template.html \
      "${data[@]}"; } | LC_ALL=C sort -u
}
data=(configs/*.json lessons/*/config.json lessons/07_pipeline/pace.json lessons/choose/measured.json)

if [[ ${1:-} != --page-only ]]; then
  pids=()
  while read -r room sources; do
    # shellcheck disable=SC2086  # words
    compile "$room" $sources &
    pids+=($!)
    if ((${#pids[@]} >= $(nproc))); then wait "${pids[0]}" && pids=("${pids[@]:1}"); fi
  done < <(rooms)
  for pid in "${pids[@]}"; do wait "$pid"; done
  embed=()
  for file in "${data[@]}"; do embed+=(--embed-file "$file@$file"); done
  mapfile -t objects < <(rooms | sed "s|^\([^ ]*\).*|$build/\1.o|")
  # Above -O1 emscripten's JavaScript optimiser fails. The stack must be large enough for the depth that
  # parsers allow.
  em++ -O1 -fwasm-exceptions "${objects[@]}" "${embed[@]}" -o "$build/engine.js" --no-entry -sMODULARIZE=1 \
    -sEXPORT_NAME=makeEngine \
    -sALLOW_MEMORY_GROWTH=1 -sINITIAL_MEMORY=64MB -sMAXIMUM_MEMORY=2GB -sTOTAL_STACK=16MB \
    -sENVIRONMENT=web,node -sFORCE_FILESYSTEM=1 \
    -sEXPORTED_FUNCTIONS=_explore,_malloc,_free \
    -sEXPORTED_RUNTIME_METHODS=FS,UTF8ToString,stringToUTF8,lengthBytesUTF8
  wasm-opt -O2 --all-features "$build/engine.wasm" -o "$build/small.wasm"
  sources >"$build/sources.txt"
fi
python3 -B docs/explore/page.py "$build"

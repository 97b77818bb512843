# One function for each kind of target, so that all rooms are built alike.

# Warnings and sanitizers for our own code. -Wno-restrict: g++ 12 warns about std::string's own operator+ (GCC
# bug 105651).
add_library(sc_flags INTERFACE)
target_include_directories(sc_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(sc_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-unused-parameter
  -Wno-restrict>)
# cxxopts parses lines itself: <regex> costs three seconds per file, and its `.` ends at a line break.
target_compile_definitions(sc_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:CXXOPTS_NO_REGEX>)
# fmt 9 turns constexpr off for nvcc, and then does not compile as C++20.
target_compile_definitions(sc_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
if(STAGECRAFT_SANITIZE)
  target_compile_options(sc_flags INTERFACE
    -fsanitize=${STAGECRAFT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(STAGECRAFT_SANITIZE MATCHES "address,undefined")
    # AddressSanitizer finds the same errors, and these three take a third of the compile time.
    target_compile_options(sc_flags INTERFACE -fno-sanitize=null,object-size,vptr)
  endif()
  target_link_options(sc_flags INTERFACE -fsanitize=${STAGECRAFT_SANITIZE})
endif()

add_custom_target(gpu_libraries)
option(STAGECRAFT_UNITY
  "Compile up to 16 files of a room as one, in a third of the time; OFF for what looks at single files" ON)

# sc_library(comm SOURCES a.cpp b.cpp DEPENDS base LibTorch::cpu): library sc_comm; DEPENDS names rooms or
# targets. COLD: nothing in it takes time during a step, so it is compiled at -O1, in two thirds of the time.
# CUDA_SOURCES c.cu d.cpp are built in the cuda preset only; no other file sees STAGECRAFT_CUDA, so that all
# others compile to the same objects in both presets.
function(sc_library name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;CUDA_SOURCES;DEPENDS" ${ARGN})
  add_library(sc_${name} STATIC ${ARG_SOURCES})
  sc_unity(sc_${name} 16)
  if(ARG_COLD)
    sc_cold(sc_${name})
  endif()
  sc_link(sc_${name} ${ARG_DEPENDS})
  if(STAGECRAFT_CUDA AND ARG_CUDA_SOURCES)
    add_dependencies(gpu_libraries sc_${name})
    target_sources(sc_${name} PRIVATE ${ARG_CUDA_SOURCES})
    set_source_files_properties(${ARG_CUDA_SOURCES} PROPERTIES COMPILE_DEFINITIONS STAGECRAFT_CUDA)
    target_link_libraries(sc_${name} PUBLIC LibTorch::cuda Nccl::nccl)
  endif()
endfunction()

function(sc_unity target files)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${STAGECRAFT_UNITY} UNITY_BUILD_BATCH_SIZE ${files})
endfunction()

function(sc_cold target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

function(sc_link target)
  target_link_libraries(${target} PUBLIC sc_flags)
  foreach(_dep IN LISTS ARGN)
    if(TARGET sc_${_dep})
      target_link_libraries(${target} PUBLIC sc_${_dep})
    else()
      target_link_libraries(${target} PUBLIC ${_dep})
    endif()
  endforeach()
endfunction()

# The libraries that every program of the cuda preset needs besides its rooms; without them torch finds no
# GPU. For the linker only: the sources compile as in the cpu preset, and ccache has their objects.
function(_sc_program target)
  if(STAGECRAFT_CUDA)
    target_link_libraries(${target} PRIVATE $<LINK_ONLY:LibTorch::cuda>)
  endif()
endfunction()

# Labels of a test: its folder in tests/, those given, `core` for the rooms that AddressSanitizer checks in
# CI, and `threads` for tests that start threads, which ThreadSanitizer checks. The target core_tests builds
# what `ctest -L core` runs, threads_tests what `ctest -L threads` runs. gpu_tests builds what `ctest -L gpu`
# runs, every program, and everything else with a cuda build of its own, but no test that the cpu preset has
# as well; gpu_libraries all rooms with sources for a GPU.
add_custom_target(core_tests)
add_custom_target(threads_tests)
add_custom_target(gpu_tests)
function(_sc_label out target labels)
  get_filename_component(_room ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  list(APPEND labels ${_room})
  if(_room MATCHES "^(input|base|config|memory|storage)$")
    list(APPEND labels core)
  endif()
  list(REMOVE_DUPLICATES labels)
  foreach(_label core threads gpu)
    if("${_label}" IN_LIST labels AND TARGET ${target})
      add_dependencies(${_label}_tests ${target})
    endif()
  endforeach()
  set(${out} "${labels}" PARENT_SCOPE)
endfunction()

# sc_in_bin(choose) or sc_in_bin(comm_sweep tests): puts a program in the build's bin/, or in a folder there.
function(sc_in_bin target)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/${ARGN})
  add_dependencies(gpu_tests ${target})
endfunction()

# A test's seconds: as given, otherwise `default`; a sanitizer's build takes five to thirteen times as long.
macro(_sc_timeout variable default)
  if(NOT ${variable})
    set(${variable} ${default})
  endif()
  if(STAGECRAFT_SANITIZE OR CMAKE_CROSSCOMPILING)
    math(EXPR ${variable} "4 * ${${variable}}")
  endif()
endmacro()

# Makes a test's program, or adds files to it if another test has begun it. Programs are few, because most of
# a test's compile time goes into headers, above all LibTorch's and GoogleTest's.
function(_sc_test_program program sources)
  if(TARGET ${program})
    target_sources(${program} PRIVATE ${sources})
  else()
    add_executable(${program} ${sources})
    sc_unity(${program} 16)
    sc_link(${program} GTest::gtest test_main)
    _sc_program(${program})
  endif()
  sc_link(${program} ${ARGN})
endfunction()

# The argument that leaves out a program's tests in these files (tests/support/test_files.h).
function(_sc_files_flag out)
  set(_files "")
  foreach(_source IN LISTS ARGN)
    if(_source MATCHES "_test\\.cpp$")
      cmake_path(ABSOLUTE_PATH _source NORMALIZE)
      cmake_path(RELATIVE_PATH _source BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
      list(APPEND _files ${_source})
    endif()
  endforeach()
  list(JOIN _files ":" _files)
  set(${out} "--files=${_files}" PARENT_SCOPE)
endfunction()

# sc_test(comm_local_test SOURCES x_test.cpp DEPENDS comm): a GoogleTest executable and one ctest entry, which
# runs the tests of its files. IN rooms_tests: part of that executable, which several entries share. LABELS
# are ctest's (gpu: counts as skipped if the test says so); ENV has NAME=value pairs; TIMEOUT seconds (default
# 120).
function(sc_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;IN" "SOURCES;DEPENDS;LABELS;ENV" ${ARGN})
  if(NOT ARG_IN)
    set(ARG_IN ${name})
  endif()
  _sc_test_program(${ARG_IN} "${ARG_SOURCES}" ${ARG_DEPENDS})
  _sc_files_flag(_files ${ARG_SOURCES})
  add_test(NAME ${name} COMMAND ${ARG_IN} ${_files} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  _sc_timeout(ARG_TIMEOUT 120)
  _sc_label(_labels ${ARG_IN} "${ARG_LABELS}")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${_labels}" ENVIRONMENT "${ARG_ENV}")
  if("gpu" IN_LIST _labels)
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  endif()
endfunction()

# sc_benchmark(adamw_benchmark SOURCES x_bench.cpp DEPENDS optim): a program that is not a test. Built by
# name, and by the cuda preset's `all` and `gpu_tests`, so that CI compiles it once.
function(sc_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  # -O3 comes after the -O0 of tests, and so counts.
  target_compile_options(${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O3>)
  sc_link(${name} ${ARG_DEPENDS})
  sc_in_bin(${name} tests)  # where tests/benchmarks looks for it
  if(NOT STAGECRAFT_CUDA)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# sc_script_test(setup_launch_test SCRIPT launch_test.sh): a bash script as a ctest entry; exit 77 counts as
# skipped. It is started in the repository with the build folder as its argument. LABELS, ENV and TIMEOUT as
# for sc_test.
function(sc_script_test name)
  cmake_parse_arguments(ARG "" "SCRIPT;TIMEOUT" "LABELS;ENV" ${ARGN})
  add_test(NAME ${name} COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT} ${CMAKE_BINARY_DIR}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  _sc_timeout(ARG_TIMEOUT 120)
  _sc_label(_labels ${name} "${ARG_LABELS}")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${_labels}" ENVIRONMENT "${ARG_ENV}"
    SKIP_RETURN_CODE 77)
endfunction()

# sc_mpi_test(comm_mpi_test RANKS 1 2 3 4 SOURCES x_test.cpp DEPENDS comm): a GoogleTest executable that runs
# under mpirun, with one ctest entry <name>_<n> for each number of ranks. TIMEOUT seconds (default 60) is
# mpirun's own, so that no rank outlives it. IN, LABELS (and `mpi`) and ENV as for sc_test.
function(sc_mpi_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;IN" "RANKS;SOURCES;DEPENDS;LABELS;ENV" ${ARGN})
  if(NOT ARG_IN)
    set(ARG_IN ${name})
  endif()
  if(NOT TARGET ${ARG_IN})
    list(APPEND ARG_SOURCES ${CMAKE_SOURCE_DIR}/tests/comm/mpi_test_main.cpp)
  endif()
  _sc_test_program(${ARG_IN} "${ARG_SOURCES}" comm ${ARG_DEPENDS})
  _sc_files_flag(_files ${ARG_SOURCES})
  _sc_timeout(ARG_TIMEOUT 60)
  _sc_label(_labels ${ARG_IN} "${ARG_LABELS};mpi")
  math(EXPR _outer "${ARG_TIMEOUT} + 10")
  foreach(_ranks IN LISTS ARG_RANKS)
    add_test(NAME ${name}_${_ranks}
      COMMAND ${MPIEXEC_EXECUTABLE} -q --oversubscribe --bind-to none --timeout ${ARG_TIMEOUT} -n ${_ranks}
      $<TARGET_FILE:${ARG_IN}> ${_files}
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name}_${_ranks} PROPERTIES TIMEOUT ${_outer} LABELS "${_labels}"
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;${ARG_ENV}")
  endforeach()
endfunction()

# add_lesson(FOLDER STRATEGY file [SOURCES x.cpp] [PLAN y.cpp]): file_plan.cpp and PLAN go into the library
# lesson_plans, which needs no torch; file.cpp, file_memory.cpp and SOURCES into lesson_FOLDER (the strategy,
# also for tests). Also makes an executable with the folder's name, and a ctest entry that runs its run.sh
# --dry-run. add_lesson(FOLDER OF OTHER): uses the strategy of another lesson.
function(add_lesson folder)
  cmake_parse_arguments(ARG "" "STRATEGY;OF" "SOURCES;PLAN" ${ARGN})
  set(_dir ${CMAKE_SOURCE_DIR}/lessons/${folder})
  if(ARG_OF)
    set(_strategy lesson_${ARG_OF})
  else()
    set(_strategy lesson_${folder})
    file(GLOB _memory ${_dir}/${ARG_STRATEGY}_memory.cpp)
    add_library(${_strategy} STATIC ${_dir}/${ARG_STRATEGY}.cpp ${_memory} ${ARG_SOURCES})
    sc_unity(${_strategy} 8)
    target_sources(lesson_plans PRIVATE ${_dir}/${ARG_STRATEGY}_plan.cpp)
    foreach(_file IN LISTS ARG_PLAN)
      target_sources(lesson_plans PRIVATE ${_dir}/${_file})
    endforeach()
    sc_link(${_strategy} lesson_plans strategy)
  endif()
  add_executable(${folder} ${_dir}/main.cpp)
  sc_cold(${folder})
  sc_link(${folder} ${_strategy} run)
  _sc_program(${folder})
  sc_in_bin(${folder})
  add_test(NAME ${folder}_run_sh COMMAND ${_dir}/run.sh --dry-run WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()

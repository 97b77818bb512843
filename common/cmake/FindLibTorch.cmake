# LibTorch from a wheel of the Python package index. Looks, in this order, at LIBTORCH_ROOT (a `torch` package
# directory), at what setup.sh installed in .deps/, and at python3's own torch, like torch_for() in
# common/setup/lib.sh.
#   LibTorch::cpu   c10 + torch_cpu
#   LibTorch::cuda  also c10_cuda + torch_cuda, kept although nothing refers to their symbols; with
#                   STAGECRAFT_CUDA only
# Sets LIBTORCH_SITE, the directory that holds the torch package and the nvidia packages next to it, and
# LIBTORCH_INCLUDE.
set(LIBTORCH_ROOT "" CACHE PATH "The torch package directory of a wheel, holding include/ and lib/")
set(_deps "${CMAKE_SOURCE_DIR}/.deps")
set(_version 2.11.0)

if(STAGECRAFT_CUDA)
  set(_candidates "${LIBTORCH_ROOT}" "${_deps}/torch-cuda/torch")
  set(_needed torch_cuda)
  set(_fix "common/setup/setup.sh --cuda")
else()
  set(_candidates "${LIBTORCH_ROOT}" "${_deps}/torch-cpu/torch" "${_deps}/torch-cuda/torch")
  set(_needed torch_cpu)
  set(_fix "common/setup/setup.sh")
endif()
execute_process(
  COMMAND python3 -c "import os, importlib.util as u; print(os.path.dirname(u.find_spec('torch').origin))"
  OUTPUT_VARIABLE _python_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(EXISTS "${_python_root}/version.py")
  file(STRINGS "${_python_root}/version.py" _python_version REGEX "__version__ = '${_version}['+]")
  if(_python_version)
    list(APPEND _candidates "${_python_root}")
  endif()
endif()
set(_root "")
foreach(_candidate IN LISTS _candidates)
  if(_candidate AND EXISTS "${_candidate}/lib/lib${_needed}.so")
    set(_root "${_candidate}")
    break()
  endif()
endforeach()
if(NOT _root)
  message(FATAL_ERROR
    "LibTorch ${_version} not found.\n  fix: ${_fix}, or set LIBTORCH_ROOT to <site-packages>/torch")
endif()
get_filename_component(LIBTORCH_SITE "${_root}" DIRECTORY)
message(STATUS "LibTorch: ${_root}")

# If both wheels are installed, they have the same headers twice. One path for both presets makes their
# compile commands equal, so that ccache serves the second preset from the first.
set(_include "${_root}/include")
if(_root STREQUAL "${_deps}/torch-cuda/torch" AND EXISTS "${_deps}/torch-cpu/torch/include/ATen")
  set(_include "${_deps}/torch-cpu/torch/include")
endif()

function(_libtorch_import name)
  add_library(LibTorch::${name} SHARED IMPORTED)
  set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION "${_root}/lib/lib${name}.so"
    IMPORTED_NO_SONAME TRUE)
endfunction()

_libtorch_import(c10)
_libtorch_import(torch_cpu)
add_library(LibTorch::cpu INTERFACE IMPORTED)
# torch's headers contain their own fmt, which would hide the one that the system's spdlog needs, so they come
# last, by -idirafter. nvcc passes an unknown option to g++ if it is one word.
function(_libtorch_include_last target)
  foreach(_dir IN LISTS ARGN)
    target_compile_options(${target} INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${_dir}>" "$<$<COMPILE_LANGUAGE:CUDA>:-idirafter${_dir}>")
  endforeach()
endfunction()
set(LIBTORCH_INCLUDE "${_include}")
_libtorch_include_last(LibTorch::cpu "${_include}" "${_include}/torch/csrc/api/include")
target_compile_definitions(LibTorch::cpu INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_link_libraries(LibTorch::cpu INTERFACE LibTorch::torch_cpu LibTorch::c10)
# The libraries find their own dependencies by RPATH, so the linker need not look for them.
target_link_options(LibTorch::cpu INTERFACE "-Wl,-rpath,${_root}/lib" "-Wl,--allow-shlib-undefined")

if(STAGECRAFT_CUDA)
  add_library(LibTorch::cuda INTERFACE IMPORTED)
  target_link_libraries(LibTorch::cuda INTERFACE LibTorch::cpu)
  # Headers of nvcc's own toolkit, then (cuBLAS, if nvcc came from a wheel) those next to LibTorch.
  # find_package(CUDAToolkit) of CMake 3.25 fails with a CUDA 13 without nvToolsExt.
  target_include_directories(LibTorch::cuda SYSTEM INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  if(EXISTS "${LIBTORCH_SITE}/nvidia/cu13/include")
    _libtorch_include_last(LibTorch::cuda "${LIBTORCH_SITE}/nvidia/cu13/include")
  endif()
  # torch_cuda registers its kernels when it is loaded. Nothing refers to it, so the linker would drop it.
  target_link_options(LibTorch::cuda INTERFACE
    "SHELL:-Wl,--no-as-needed ${_root}/lib/libtorch_cuda.so ${_root}/lib/libc10_cuda.so -Wl,--as-needed")
  # A process must have one CUDA runtime: the wheel's if it has one, otherwise the toolkit's.
  find_file(LIBTORCH_CUDART libcudart.so.13
    HINTS "${LIBTORCH_SITE}/nvidia/cu13/lib" ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} REQUIRED NO_DEFAULT_PATH)
  target_link_libraries(LibTorch::cuda INTERFACE "${LIBTORCH_CUDART}")
endif()

# GPUs that kernels are compiled for: machine code for compute capability 8.0, which 8.6, 8.7 and 8.9 run too,
# and for 9.0; and the PTX of 8.0, which the driver of newer GPUs compiles when a program starts.
# -DCMAKE_CUDA_ARCHITECTURES=... replaces the list. Sets STAGECRAFT_GPU_ARCHITECTURES, the list with spaces; a
# program compares its GPU with it (base/gpu_architectures.h).
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90-real)
endif()
foreach(_architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
  if(NOT _architecture MATCHES "^[0-9]+[af]?(-real|-virtual)?$")
    message(FATAL_ERROR
      "CMAKE_CUDA_ARCHITECTURES: '${_architecture}' is not a number such as 86, 90-real or 80-virtual.\n"
      "  fix: leave it out, or -DCMAKE_CUDA_ARCHITECTURES=86")
  endif()
endforeach()
list(JOIN CMAKE_CUDA_ARCHITECTURES " " STAGECRAFT_GPU_ARCHITECTURES)

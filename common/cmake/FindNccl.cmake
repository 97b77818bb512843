# NCCL: always the library that LibTorch loads, because two copies in a process would keep two states. Needs
# LIBTORCH_SITE from FindLibTorch.
#   Nccl::nccl  header and library
find_path(NCCL_INCLUDE_DIR nccl.h HINTS "${LIBTORCH_SITE}/nvidia/nccl/include" NO_DEFAULT_PATH)
find_file(NCCL_LIBRARY libnccl.so.2 HINTS "${LIBTORCH_SITE}/nvidia/nccl/lib" NO_DEFAULT_PATH)
if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
  message(FATAL_ERROR "NCCL not found beside LibTorch, in ${LIBTORCH_SITE}/nvidia/nccl.\n"
    "  fix: common/setup/setup.sh --cuda, or pip install nvidia-nccl-cu13 where that torch is")
endif()
message(STATUS "NCCL: ${NCCL_LIBRARY}")
add_library(Nccl::nccl SHARED IMPORTED)
set_target_properties(Nccl::nccl PROPERTIES IMPORTED_LOCATION "${NCCL_LIBRARY}")
# -I instead of -isystem, so that it is found before the toolkit's folder, which may contain another nccl.h.
target_include_directories(Nccl::nccl INTERFACE "${NCCL_INCLUDE_DIR}")
set_target_properties(Nccl::nccl PROPERTIES IMPORTED_NO_SYSTEM TRUE)

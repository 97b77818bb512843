# Cross-compiles for aarch64 with Debian's g++-12-aarch64-linux-gnu, against the arm64 packages and the
# LibTorch that tests/aarch64.sh puts into .deps/aarch64; programs run under qemu-aarch64-static.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
cmake_path(SET CMAKE_SYSROOT NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../../.deps/aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc-12)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${CMAKE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(LIBTORCH_ROOT ${CMAKE_SYSROOT}/wheels/torch)
# mpicc and pkg-config would name this machine's libraries.
set(CMAKE_DISABLE_FIND_PACKAGE_PkgConfig ON)
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_C_HEADER_DIR ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi/include)
set(MPI_C_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi/lib/libmpi.so)

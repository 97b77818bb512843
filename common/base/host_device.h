// Marks functions that both the CPU compiler and nvcc compile.
#pragma once

#ifdef __CUDACC__
#define SC_HOST_DEVICE __host__ __device__
#else
#define SC_HOST_DEVICE
#endif

// Functions that the CPU and nvcc compile alike.
#pragma once

#ifdef __CUDACC__
#define SC_HOST_DEVICE __host__ __device__
#else
#define SC_HOST_DEVICE
#endif

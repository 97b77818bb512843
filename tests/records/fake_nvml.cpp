// A stand-in for NVIDIA's management library: the functions that common/records/gpu_sensors.cpp calls, for
// one made-up GPU.
#include <cstring>

namespace {
int gpu = 0;
unsigned clocks = 1500, milliwatts = 600'000;
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  *device = &gpu;
  return std::strcmp(id, "0000:18:00.0") == 0 ? 0 : 6;
}
// NVML's clock type 1 is the clock of the multiprocessors.
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* mhz) {
  *mhz = ++clocks;
  return device == &gpu && type == 1 ? 0 : 2;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* power) {
  *power = ++milliwatts;
  return device == &gpu ? 0 : 2;
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* power) {
  *power = 700'000;
  return device == &gpu ? 0 : 2;
}
}

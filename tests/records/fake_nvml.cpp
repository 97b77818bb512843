// The functions of the driver's management library that common/records/gpu_sensors.cpp asks, of one made-up
// GPU.
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
// type 1: the multiprocessors' clock
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

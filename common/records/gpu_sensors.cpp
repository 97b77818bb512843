#include "common/records/gpu_sensors.h"

#include <dlfcn.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>

namespace sc {
namespace {

constexpr int kSmClock = 1;  // NVML_CLOCK_SM

double median_of(std::vector<GpuSensors::Sample>& samples, double GpuSensors::Sample::*number) {
  std::ranges::sort(samples, {}, number);
  return samples[samples.size() / 2].*number;
}

}  // namespace

// NVML, whose functions return 0 on success. It is never unloaded: it is the driver's, and others may use it.
struct GpuSensors::Library {
  using Read = int (*)(void*, unsigned*);

  Library(const char* name, const std::string& pci_bus_id) : handle(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) return;
    const auto init = function<int (*)()>("nvmlInit_v2");
    const auto find = function<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    clock = function<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    power = function<Read>("nvmlDeviceGetPowerUsage");
    limit = function<Read>("nvmlDeviceGetEnforcedPowerLimit");
    if (!init || !find || !clock || !power || !limit || init() != 0) return;
    if (find(pci_bus_id.c_str(), &device) != 0) device = nullptr;
  }
  template <class F>
  F function(const char* name) {
    return reinterpret_cast<F>(::dlsym(handle, name));
  }

  void* const handle;
  void* device = nullptr;  // null: nothing can be read
  int (*clock)(void*, int, unsigned*) = nullptr;
  Read power = nullptr, limit = nullptr;
};

GpuSensors::GpuSensors(const std::string& pci_bus_id, const char* library)
    : library_(std::make_shared<Library>(library, pci_bus_id)) {}

std::optional<GpuSensors::Sample> GpuSensors::sample() const {
  unsigned mhz = 0, milliwatts = 0, limit = 0;
  const Library& l = *library_;
  if (l.device == nullptr || l.clock(l.device, kSmClock, &mhz) != 0 || l.power(l.device, &milliwatts) != 0 ||
      l.limit(l.device, &limit) != 0)
    return std::nullopt;
  return Sample{static_cast<double>(mhz), milliwatts / 1e3, limit / 1e3};
}

std::optional<GpuSensors::Sample> median_of(std::vector<GpuSensors::Sample> samples) {
  using Sample = GpuSensors::Sample;
  if (samples.empty()) return std::nullopt;
  return Sample{median_of(samples, &Sample::sm_mhz), median_of(samples, &Sample::watts),
                median_of(samples, &Sample::limit_watts)};
}

std::string format_sensors(const std::optional<GpuSensors::Sample>& sample) {
  if (!sample) return "  clock and power: not known, the driver's libnvidia-ml.so.1 does not say\n";
  return fmt::format("  SM clock {:.0f} MHz, {:.0f} W of at most {:.0f} (medians of the steps)\n",
                     sample->sm_mhz, sample->watts, sample->limit_watts);
}

}  // namespace sc

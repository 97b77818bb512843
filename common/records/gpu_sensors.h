// Clock and power of a GPU, from the driver's management library. No CUDA, no torch.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sc {

/// Opens libnvidia-ml.so.1. Without it, or without that GPU, sample() is empty and the run goes on.
///   Source  NVIDIA, NVML API Reference Guide: nvmlDeviceGetClockInfo, nvmlDeviceGetPowerUsage,
///           nvmlDeviceGetEnforcedPowerLimit. Power is the driver's own mean over about a second.
class GpuSensors {
 public:
  struct Sample {
    double sm_mhz = 0, watts = 0, limit_watts = 0;
    bool operator==(const Sample&) const = default;
  };
  /// `pci_bus_id` is CUDA's name of the GPU, "0000:18:00.0". Tests pass another `library`.
  explicit GpuSensors(const std::string& pci_bus_id, const char* library = "libnvidia-ml.so.1");
  [[nodiscard]] std::optional<Sample> sample() const;

 private:
  struct Library;
  std::shared_ptr<const Library> library_;
};

/// The median of each number; empty if there are no samples.
std::optional<GpuSensors::Sample> median_of(std::vector<GpuSensors::Sample> samples);
std::string format_sensors(const std::optional<GpuSensors::Sample>& sample);

}  // namespace sc

// The build without GPU code.
#include <unistd.h>

#include "common/base/check.h"
#include "common/run/gpu.h"
#include "common/run/gpu_profile.h"

namespace sc {
namespace {

[[noreturn]] void refuse() {
  throw InputError(ExitCode::missing, "--device cuda", "this build has no GPU code",
                   ::access("/dev/nvidiactl", F_OK) == 0 ? "run.sh --preset cuda, or --device cpu"
                                                         : "--device cpu: no GPU is visible on this machine");
}

}  // namespace

struct Gpu::State {};

Gpu::Gpu(int) { refuse(); }
Gpu::~Gpu() = default;
at::Device Gpu::device() const { refuse(); }
GpuFacts Gpu::facts() const { refuse(); }
void Gpu::synchronize() { refuse(); }
Bytes Gpu::peak() const { refuse(); }
void Gpu::reset_peak() { refuse(); }
std::vector<Gpu::Constant> Gpu::constants() const { refuse(); }
Bytes Gpu::beside_allocator() const { refuse(); }
void Gpu::capture(const std::function<void()>&) { refuse(); }
bool Gpu::captured() const { refuse(); }
void Gpu::drop_graph() { refuse(); }
void Gpu::replay() { refuse(); }
std::int64_t replica_hash_cuda(const at::Tensor&) { refuse(); }
struct GpuProfile::State {};
GpuProfile::GpuProfile() { refuse(); }
GpuProfile::~GpuProfile() = default;
void GpuProfile::begin(std::string_view, const OpCost&) { refuse(); }
void GpuProfile::end() { refuse(); }
void GpuProfile::begin_step() { refuse(); }
void GpuProfile::end_step() { refuse(); }
std::int64_t GpuProfile::steps() const { refuse(); }
std::vector<ProfileRow> GpuProfile::rows() const { refuse(); }
double GpuProfile::step_milliseconds() const { refuse(); }

bool gpu_available() { return false; }

}  // namespace sc

// The build without GPU code.
#include "common/base/gpu_code.h"
#include "common/gpu/gpu.h"
#include "common/gpu/gpu_profile.h"

namespace sc {
struct Gpu::State {};

Gpu::Gpu(int) { refuse_without_gpu_code(); }
Gpu::~Gpu() = default;
at::Device Gpu::device() const { refuse_without_gpu_code(); }
GpuFacts Gpu::facts() const { refuse_without_gpu_code(); }
Bytes Gpu::peak() const { refuse_without_gpu_code(); }
void Gpu::reset_peak() { refuse_without_gpu_code(); }
std::int64_t Gpu::allocations() const { refuse_without_gpu_code(); }
std::vector<AllocatorCheck::Part> Gpu::constants() const { refuse_without_gpu_code(); }
Bytes Gpu::scratch() const { refuse_without_gpu_code(); }
Bytes Gpu::free() const { refuse_without_gpu_code(); }
void Gpu::note_beside_allocator(const std::string&, Bytes) { refuse_without_gpu_code(); }
const std::vector<AllocatorCheck::Part>& Gpu::beside_allocator() const { refuse_without_gpu_code(); }
void Gpu::capture(const std::function<void()>&) { refuse_without_gpu_code(); }
bool Gpu::captured() const { refuse_without_gpu_code(); }
std::optional<GraphNodes> Gpu::graph_nodes() const { refuse_without_gpu_code(); }
void Gpu::drop_graph() noexcept {}
void Gpu::replay() { refuse_without_gpu_code(); }
struct GpuProfile::State {};
GpuProfile::GpuProfile() { refuse_without_gpu_code(); }
GpuProfile::~GpuProfile() = default;
void GpuProfile::begin(std::string_view, const OpCost&) { refuse_without_gpu_code(); }
void GpuProfile::end() { refuse_without_gpu_code(); }
void GpuProfile::begin_step() { refuse_without_gpu_code(); }
void GpuProfile::end_step() { refuse_without_gpu_code(); }
Profile GpuProfile::finish(c10::ScalarType) { refuse_without_gpu_code(); }

bool gpu_available() { return false; }

}  // namespace sc

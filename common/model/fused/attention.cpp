#include "common/model/fused/attention.h"

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include "common/base/check.h"
#include "common/base/handle.h"

namespace sc {

template <>
struct StatusTraits<cudnnStatus_t> {
  static bool ok(cudnnStatus_t status) { return status == CUDNN_STATUS_SUCCESS; }
  static std::string text(cudnnStatus_t status) { return cudnnGetErrorString(status); }
};
template <>
struct StatusTraits<cudnn_frontend::error_t> {
  static bool ok(const cudnn_frontend::error_t& status) { return status.is_good(); }
  static std::string text(const cudnn_frontend::error_t& status) { return status.err_msg; }
};

namespace fused {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// The names by which cuDNN matches a graph's inputs and outputs to pointers.
enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kLse, kGradOut, kGradQ, kGradK, kGradV };

fe::DataType_t type_of(DType dtype) {
  return dtype == DType::f16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
}

// The dimensions of q, k, v and out in cuDNN's order, [batch, heads, length, head].
std::vector<std::int64_t> dims(const AttentionShape& s) { return {s.batch, s.heads, s.length, s.head}; }
// The strides of one matrix out of `count` that lie next to each other in each row.
std::vector<std::int64_t> strides(const AttentionShape& s, std::int64_t count) {
  const std::int64_t row = count * s.heads * s.head;
  return {s.length * row, s.head, row, 1};
}

fe::graph::Graph new_graph(const AttentionShape& s) {
  fe::graph::Graph graph;
  graph.set_io_data_type(type_of(s.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

Tensor input(fe::graph::Graph& graph, const AttentionShape& s, Uid uid, std::int64_t packed) {
  return graph.tensor(
      fe::graph::Tensor_attributes().set_uid(uid).set_dim(dims(s)).set_stride(strides(s, packed)));
}
void output(const Tensor& tensor, const AttentionShape& s, Uid uid, std::int64_t packed) {
  tensor->set_output(true).set_uid(uid).set_dim(dims(s)).set_stride(strides(s, packed));
}
void as_lse(fe::graph::Tensor_attributes& tensor, const AttentionShape& s) {
  tensor.set_uid(kLse)
      .set_dim({s.batch, s.heads, s.length, 1})
      .set_stride({s.heads * s.length, s.length, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}
float scale_of(const AttentionShape& s) { return 1.0F / std::sqrt(static_cast<float>(s.head)); }

void build(fe::graph::Graph& graph, cudnnHandle_t handle) {
  SC_CHECK(graph.validate());
  SC_CHECK(graph.build_operation_graph(handle));
  SC_CHECK(graph.create_execution_plans({fe::HeurMode_t::A}));
  SC_CHECK(graph.check_support(handle));
  SC_CHECK(graph.build_plans(handle, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE));
}

fe::graph::Graph forward_graph(const AttentionShape& s) {
  fe::graph::Graph graph = new_graph(s);
  auto [out, lse] =
      graph.sdpa(input(graph, s, kQ, 3), input(graph, s, kK, 3), input(graph, s, kV, 3),
                 fe::graph::SDPA_attributes().set_generate_stats(true).set_causal_mask(true).set_attn_scale(
                     scale_of(s)));
  output(out, s, kOut, 1);
  lse->set_output(true);
  as_lse(*lse, s);
  return graph;
}

fe::graph::Graph backward_graph(const AttentionShape& s, bool deterministic) {
  fe::graph::Graph graph = new_graph(s);
  fe::graph::Tensor_attributes lse;
  as_lse(lse, s);
  auto [q, k, v] =
      graph.sdpa_backward(input(graph, s, kQ, 3), input(graph, s, kK, 3), input(graph, s, kV, 3),
                          input(graph, s, kOut, 1), input(graph, s, kGradOut, 1), graph.tensor(lse),
                          fe::graph::SDPA_backward_attributes()
                              .set_causal_mask(true)
                              .set_attn_scale(scale_of(s))
                              .set_deterministic_algorithm(deterministic));
  output(q, s, kGradQ, 3);
  output(k, s, kGradK, 3);
  output(v, s, kGradV, 3);
  return graph;
}

std::int64_t workspace_of(const fe::graph::Graph& graph) {
  std::int64_t bytes = 0;
  SC_CHECK(graph.get_workspace_size(bytes));
  return bytes;
}

// Adds the pointers to q, k and v (or their gradients) within one matrix. cuDNN wants inputs non-const.
void add_packed(std::unordered_map<std::int64_t, void*>& pointers, const AttentionShape& s, Uid first,
                const void* packed) {
  const auto bytes = static_cast<std::size_t>(s.heads * s.head * size_of(s.dtype));
  for (int i = 0; i < 3; ++i)
    pointers[first + i] = static_cast<std::byte*>(const_cast<void*>(packed)) + i * bytes;
}

}  // namespace

struct Attention::Handle {
  Handle() { SC_CHECK(cudnnCreate(&cudnn)); }
  ~Handle() { (void)cudnnDestroy(cudnn); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cudnnHandle_t cudnn = nullptr;
};

struct Attention::Plans {
  Plans(const AttentionShape& s, bool deterministic, cudnnHandle_t handle)
      : forward(forward_graph(s)), backward(backward_graph(s, deterministic)) {
    build(forward, handle);
    build(backward, handle);
    workspace = std::max(workspace_of(forward), workspace_of(backward));
  }
  fe::graph::Graph forward, backward;
  std::int64_t workspace = 0;
};

Attention::Attention(bool deterministic) : deterministic_(deterministic) {}
Attention::~Attention() = default;

Attention::Plans& Attention::plans(const AttentionShape& shape) {
  if (!handle_) handle_ = std::make_unique<Handle>();
  std::unique_ptr<Plans>& plans = plans_[shape];
  if (!plans) plans = std::make_unique<Plans>(shape, deterministic_, handle_->cudnn);
  return *plans;
}

bool Attention::has(const AttentionShape& shape) {
  const std::lock_guard lock(mutex_);
  if (!handle_) handle_ = std::make_unique<Handle>();
  try {
    (void)plans(shape);
  } catch (const DeviceError&) {
    return false;
  }
  return true;
}

std::int64_t Attention::workspace_bytes(const AttentionShape& shape) {
  const std::lock_guard lock(mutex_);
  return plans(shape).workspace;
}

void Attention::forward(const AttentionShape& shape, const void* qkv, void* out, float* lse, void* workspace,
                        cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  Plans& p = plans(shape);
  std::unordered_map<std::int64_t, void*> pointers = {{kOut, out}, {kLse, lse}};
  add_packed(pointers, shape, kQ, qkv);
  SC_CHECK(cudnnSetStream(handle_->cudnn, stream));
  SC_CHECK(p.forward.execute(handle_->cudnn, pointers, workspace));
}

void Attention::backward(const AttentionShape& shape, const Backward& at, void* workspace,
                         cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  Plans& p = plans(shape);
  std::unordered_map<std::int64_t, void*> pointers = {{kOut, const_cast<void*>(at.out)},
                                                      {kLse, const_cast<float*>(at.lse)},
                                                      {kGradOut, const_cast<void*>(at.grad_out)}};
  add_packed(pointers, shape, kQ, at.qkv);
  add_packed(pointers, shape, kGradQ, at.grad_qkv);
  SC_CHECK(cudnnSetStream(handle_->cudnn, stream));
  SC_CHECK(p.backward.execute(handle_->cudnn, pointers, workspace));
}

}  // namespace fused
}  // namespace sc

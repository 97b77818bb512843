#include "common/model/fused/attention.h"

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <vector>

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

// A tensor as cuDNN counts it: [batch, heads, length, head].
struct Matrix {
  Matrix(const AttentionShape& s, std::int64_t length, const Steps& steps)
      : dims{s.batch, s.heads, length, s.head}, strides{steps.row, s.head, steps.token, 1} {}
  std::vector<std::int64_t> dims, strides;
};
Matrix queries(const AttentionShape& s, const Steps& steps) { return {s, s.queries, steps}; }
Matrix keys(const AttentionShape& s, const Steps& steps) { return {s, s.keys, steps}; }

fe::graph::Graph new_graph(const AttentionShape& s) {
  fe::graph::Graph graph;
  graph.set_io_data_type(type_of(s.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

Tensor input(fe::graph::Graph& graph, Uid uid, const Matrix& at) {
  return graph.tensor(fe::graph::Tensor_attributes().set_uid(uid).set_dim(at.dims).set_stride(at.strides));
}
void output(const Tensor& tensor, Uid uid, const Matrix& at) {
  tensor->set_output(true).set_uid(uid).set_dim(at.dims).set_stride(at.strides);
}
void as_lse(fe::graph::Tensor_attributes& tensor, const AttentionShape& s) {
  tensor.set_uid(kLse)
      .set_dim({s.batch, s.heads, s.queries, 1})
      .set_stride({s.heads * s.queries, s.queries, 1, 1})
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
  auto [out, lse] = graph.sdpa(
      input(graph, kQ, queries(s, s.q)), input(graph, kK, keys(s, s.kv)), input(graph, kV, keys(s, s.kv)),
      fe::graph::SDPA_attributes().set_generate_stats(true).set_causal_mask(s.causal).set_attn_scale(
          scale_of(s)));
  output(out, kOut, queries(s, s.out));
  lse->set_output(true);
  as_lse(*lse, s);
  return graph;
}

fe::graph::Graph backward_graph(const AttentionShape& s, bool deterministic) {
  fe::graph::Graph graph = new_graph(s);
  fe::graph::Tensor_attributes lse;
  as_lse(lse, s);
  auto [q, k, v] = graph.sdpa_backward(input(graph, kQ, queries(s, s.q)), input(graph, kK, keys(s, s.kv)),
                                       input(graph, kV, keys(s, s.kv)), input(graph, kOut, queries(s, s.out)),
                                       input(graph, kGradOut, queries(s, s.out)), graph.tensor(lse),
                                       fe::graph::SDPA_backward_attributes()
                                           .set_causal_mask(s.causal)
                                           .set_attn_scale(scale_of(s))
                                           .set_deterministic_algorithm(deterministic));
  output(q, kGradQ, queries(s, s.grad_q));
  output(k, kGradK, keys(s, s.grad_kv));
  output(v, kGradV, keys(s, s.grad_kv));
  return graph;
}

std::int64_t workspace_of(const fe::graph::Graph& graph) {
  std::int64_t bytes = 0;
  SC_CHECK(graph.get_workspace_size(bytes));
  return bytes;
}

// cuDNN takes pointers to inputs as it takes those to outputs.
std::unordered_map<std::int64_t, void*> pointers_to(const Attention::Inputs& in) {
  return {{kQ, const_cast<void*>(in.q)}, {kK, const_cast<void*>(in.k)}, {kV, const_cast<void*>(in.v)}};
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

void Attention::forward(const AttentionShape& shape, const Inputs& in, void* out, float* lse, void* workspace,
                        cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  Plans& p = plans(shape);
  std::unordered_map<std::int64_t, void*> pointers = pointers_to(in);
  pointers.insert({{kOut, out}, {kLse, lse}});
  SC_CHECK(cudnnSetStream(handle_->cudnn, stream));
  SC_CHECK(p.forward.execute(handle_->cudnn, pointers, workspace));
}

void Attention::backward(const AttentionShape& shape, const Backward& at, void* workspace,
                         cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  Plans& p = plans(shape);
  std::unordered_map<std::int64_t, void*> pointers = pointers_to(at.in);
  pointers.insert({{kOut, const_cast<void*>(at.out)},
                   {kLse, const_cast<float*>(at.lse)},
                   {kGradOut, const_cast<void*>(at.grad_out)},
                   {kGradQ, at.grad_q},
                   {kGradK, at.grad_k},
                   {kGradV, at.grad_v}});
  SC_CHECK(cudnnSetStream(handle_->cudnn, stream));
  SC_CHECK(p.backward.execute(handle_->cudnn, pointers, workspace));
}

}  // namespace fused
}  // namespace sc

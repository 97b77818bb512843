#include "common/model/fused/lt_matmul.h"

#include <string>

#include "common/base/check.h"

namespace sc {

template <>
struct StatusTraits<cublasStatus_t> {
  static bool ok(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }
  static std::string text(cublasStatus_t status) { return cublasLtGetStatusName(status); }
};

namespace fused {
namespace {

struct DestroyDesc {
  void operator()(cublasLtMatmulDesc_t desc) const noexcept { cublasLtMatmulDescDestroy(desc); }
};
struct DestroyLayout {
  void operator()(cublasLtMatrixLayout_t layout) const noexcept { cublasLtMatrixLayoutDestroy(layout); }
};
struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t preference) const noexcept {
    cublasLtMatmulPreferenceDestroy(preference);
  }
};
using Layout = UniqueHandle<cublasLtMatrixLayout_t, DestroyLayout>;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      throw InputError(ExitCode::usage, "matrix product", "the dtype must be fp32, bf16 or fp16",
                       "--ops aten");
  }
}

Layout layout_of(DType dtype, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  SC_CHECK(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), static_cast<std::uint64_t>(rows),
                                      static_cast<std::uint64_t>(columns), rows));
  return Layout(layout);
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  SC_CHECK(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  constexpr cublasLtEpilogue_t kEpilogues[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                               CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
  return kEpilogues[static_cast<std::size_t>(epilogue)];
}

}  // namespace

struct LtMatmul::Plan {
  UniqueHandle<cublasLtMatmulDesc_t, DestroyDesc> desc;
  Layout a, b, d;  // c has the layout of d
  cublasLtMatmulAlgo_t algorithm{};
};

LtMatmul::LtMatmul() {
  cublasLtHandle_t handle = nullptr;
  SC_CHECK(cublasLtCreate(&handle));
  handle_.reset(handle);
}
LtMatmul::~LtMatmul() = default;

LtMatmul::Plan& LtMatmul::plan(const MatmulShape& s) {
  if (const auto found = plans_.find(s); found != plans_.end()) return found->second;
  Plan plan;
  cublasLtMatmulDesc_t desc = nullptr;
  SC_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  plan.desc.reset(desc);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s.epilogue));
  if (s.epilogue != Epilogue::none) set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.operands));
  if (s.epilogue == Epilogue::gelu_bias) {
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.m);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(s.result));
  }
  plan.a = s.transpose_a ? layout_of(s.operands, s.k, s.m) : layout_of(s.operands, s.m, s.k);
  plan.b = s.transpose_b ? layout_of(s.operands, s.n, s.k) : layout_of(s.operands, s.k, s.n);
  plan.d = layout_of(s.result, s.m, s.n);

  cublasLtMatmulPreference_t raw = nullptr;
  SC_CHECK(cublasLtMatmulPreferenceCreate(&raw));
  const UniqueHandle<cublasLtMatmulPreference_t, DestroyPreference> preference(raw);
  const auto workspace = static_cast<std::uint64_t>(kWorkspaceBytes);
  SC_CHECK(cublasLtMatmulPreferenceSetAttribute(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                sizeof workspace));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  SC_CHECK(cublasLtMatmulAlgoGetHeuristic(handle_.get(), desc, plan.a.get(), plan.b.get(), plan.d.get(),
                                          plan.d.get(), raw, 1, &best, &found));
  if (found == 0) throw DeviceError("cublasLt knows no algorithm for a product that --ops fused needs");
  plan.algorithm = best.algo;
  return plans_.emplace(s, std::move(plan)).first->second;
}

void LtMatmul::run(const MatmulShape& shape, const MatmulPointers& at, void* workspace, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);  // a plan's pointers are set for one call
  Plan& p = plan(shape);
  if (shape.epilogue != Epilogue::none) set(p.desc.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
  if (shape.epilogue == Epilogue::gelu_bias) {
    set(p.desc.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.before_gelu);
  }
  const float one = 1.0F, beta = shape.adds_c ? 1.0F : 0.0F;
  SC_CHECK(cublasLtMatmul(handle_.get(), p.desc.get(), &one, at.a, p.a.get(), at.b, p.b.get(), &beta,
                          shape.adds_c ? at.c : at.d, p.d.get(), at.d, p.d.get(), &p.algorithm, workspace,
                          static_cast<std::size_t>(kWorkspaceBytes), stream));
}

}  // namespace fused
}  // namespace sc

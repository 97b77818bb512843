// Matrix products by cublasLt with what ATen cannot fuse into them: a residual that is not the result, GELU
// together with its input, fp32 results of 16-bit operands. Uses the heuristic's first choice; choosing by
// short timings was worse (docs/results).
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>

#include "common/base/handle.h"
#include "common/base/types.h"

namespace sc::fused {

enum class Epilogue : std::uint8_t { none, bias, gelu_bias };

/// d (column-major [m, n]) = epilogue(op(a) op(b) + beta c), accumulated in fp32. A row-major [r, c] matrix
/// is a column-major [c, r] one.
struct MatmulShape {
  DType operands, result;  // dtypes of a, b and bias, and of c and d
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  bool adds_c;  // beta = 1; c may be d
  Epilogue epilogue;
  auto operator<=>(const MatmulShape&) const = default;
};

struct MatmulPointers {
  const void *a, *b, *c;
  void* d;
  const void* bias = nullptr;   // [m]
  void* before_gelu = nullptr;  // [m, n] like d: GELU's input
};

/// Runs products. Thread-safe. The first call for a shape asks the heuristic; later calls allocate nothing.
///   Workspace  kWorkspaceBytes from the caller, kept until the stream's next operation.
///   Errors     DeviceError.
class LtMatmul {
 public:
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

  LtMatmul();
  ~LtMatmul();
  void run(const MatmulShape& shape, const MatmulPointers& at, void* workspace, cudaStream_t stream);

 private:
  struct Plan;
  Plan& plan(const MatmulShape& shape);

  std::mutex mutex_;
  std::map<MatmulShape, Plan> plans_;
  struct Destroy {
    void operator()(cublasLtHandle_t handle) const noexcept { cublasLtDestroy(handle); }
  };
  UniqueHandle<cublasLtHandle_t, Destroy> handle_;
};

}  // namespace sc::fused

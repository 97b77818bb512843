// Time by class of operation, which --profile prints. No torch, no CUDA.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace sc {

/// The shape of a matrix product, [m, k] x [k, n] = [m, n].
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  [[nodiscard]] constexpr double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  auto operator<=>(const ProductShape&) const = default;
};

/// The least work of one operation, by its shapes: floating-point operations, bytes read and written.
struct OpCost {
  double flops = 0, bytes = 0;
  ProductShape product = {};  // of a matrix product; otherwise all zero
};

/// Receives begin() and end() around what each operation enqueues, while it is current(). An operation that
/// begins inside another counts separately, and the outer one's share ends there.
class OpProfiler {
 public:
  virtual ~OpProfiler() = default;
  virtual void begin(std::string_view op, const OpCost& cost) = 0;
  virtual void end() = 0;

  /// The current profiler, or null without --profile. Not synchronised, because one thread computes.
  static OpProfiler*& current() {
    static OpProfiler* profiler = nullptr;
    return profiler;
  }
};

/// Reports one operation to the current profiler, from construction to destruction.
class ProfiledOp {
 public:
  ProfiledOp(std::string_view op, const OpCost& cost) : profiler_(OpProfiler::current()) {
    if (profiler_ != nullptr) profiler_->begin(op, cost);
  }
  ~ProfiledOp() {
    if (profiler_ != nullptr) profiler_->end();
  }
  ProfiledOp(const ProfiledOp&) = delete;
  ProfiledOp& operator=(const ProfiledOp&) = delete;

 private:
  OpProfiler* profiler_;
};

}  // namespace sc

// Time by class of operation, which --profile prints. No torch, no CUDA.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace sc {

/// The shape of a matrix product: [m, n] = [m, k] x [k, n].
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  [[nodiscard]] constexpr double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  auto operator<=>(const ProductShape&) const = default;
};

/// The least arithmetic and memory traffic that one call needs, from its shapes.
struct OpCost {
  double flops = 0, bytes = 0;
  ProductShape product = {};  // of a matrix product; otherwise all zero
};

/// While it is current, a profiler is told of every operation. begin() and end() enclose what one operation
/// enqueues. An operation that begins inside another counts separately and ends the outer one's share.
class OpProfiler {
 public:
  virtual ~OpProfiler() = default;
  virtual void begin(std::string_view op, const OpCost& cost) = 0;
  virtual void end() = 0;

  /// The current profiler of the process, or null without --profile. Not synchronised: one thread computes.
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

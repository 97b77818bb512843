// Where time goes, by class of operation: what --profile prints. No torch, no CUDA.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace sc {

/// [m, n] = [m, k] x [k, n]
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  [[nodiscard]] constexpr double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  auto operator<=>(const ProductShape&) const = default;
};

/// Arithmetic and memory traffic of one call, from its shapes: what it cannot do without.
struct OpCost {
  double flops = 0, bytes = 0;
  ProductShape product = {};  // of a matrix product; else 0, 0, 0
};

/// Told of every operation while it is current. begin() and end() bracket what one operation enqueues; one
/// that begins within another is the other's last part, and counts apart.
class OpProfiler {
 public:
  virtual ~OpProfiler() = default;
  virtual void begin(std::string_view op, const OpCost& cost) = 0;
  virtual void end() = 0;

  /// Null: nobody looks, which costs a test of a pointer. One thread computes.
  static OpProfiler*& current() {
    static OpProfiler* profiler = nullptr;
    return profiler;
  }
};

/// One operation, from construction to destruction.
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

// One owner for every C handle.
#pragma once

#include <utility>

namespace sc {

/// Move-only owner of a C handle. The destructor calls `Destroy` once unless it is `H{}`, and never throws.
template <class H, class Destroy>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(H handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, H{})) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(std::exchange(other.handle_, H{}));
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() { reset(); }

  [[nodiscard]] H get() const { return handle_; }
  [[nodiscard]] H release() { return std::exchange(handle_, H{}); }
  void reset(H handle = H{}) noexcept {
    if (handle_ != H{}) Destroy{}(handle_);
    handle_ = handle;
  }
  explicit operator bool() const { return handle_ != H{}; }

 private:
  H handle_{};
};

}  // namespace sc

#include "common/memory/allocator_witness.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

namespace sc {
namespace {

// One per process, never destroyed: c10 keeps a pointer to it, and tensors freed at exit still call `forget`.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr block = inner_->allocate(bytes);
    if (block.get() == nullptr || !counting_) return block;
    // Our deleter can replace the default allocator's, always one function with the data as context.
    if (!block.compare_exchange_deleter(inner_->raw_deleter(), &CountingAllocator::forget)) {
      throw std::logic_error("AllocatorWitness: LibTorch's CPU allocator hands out an unknown deleter");
    }
    const std::scoped_lock lock(mutex_);
    sizes_[block.get()] = bytes;
    live_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_, live_);
    ++allocations_;
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return counting_ ? &CountingAllocator::forget : inner_->raw_deleter();
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void start() {
    const std::scoped_lock lock(mutex_);
    if (counting_) throw std::logic_error("AllocatorWitness: there is one already");
    counting_ = true;
    live_ = peak_ = allocations_ = 0;
    for (auto& [block, bytes] : sizes_) bytes = 0;  // allocated under an earlier witness, so not counted here
  }
  void stop() {
    const std::scoped_lock lock(mutex_);
    counting_ = false;
  }
  template <class F>
  auto locked(F&& f) {
    const std::scoped_lock lock(mutex_);
    return f(*this);
  }

  std::int64_t live_ = 0, peak_ = 0, allocations_ = 0;

  static CountingAllocator& installed() {
    static CountingAllocator* allocator = [] {
      auto* made = new CountingAllocator(c10::GetCPUAllocator());
      c10::SetCPUAllocator(made, /*priority=*/100);
      return made;
    }();
    return *allocator;
  }

 private:
  static void forget(void* block) {
    CountingAllocator& self = installed();
    {
      const std::scoped_lock lock(self.mutex_);
      const auto found = self.sizes_.find(block);
      if (found != self.sizes_.end()) {
        self.live_ -= static_cast<std::int64_t>(found->second);
        self.sizes_.erase(found);
      }
    }
    self.inner_->raw_deleter()(block);
  }

  c10::Allocator* inner_;
  std::mutex mutex_;
  std::atomic<bool> counting_ = false;
  std::unordered_map<void*, std::size_t> sizes_;
};

}  // namespace

AllocatorWitness::AllocatorWitness() { CountingAllocator::installed().start(); }
AllocatorWitness::~AllocatorWitness() { CountingAllocator::installed().stop(); }
Bytes AllocatorWitness::live() const {
  return CountingAllocator::installed().locked([](auto& a) { return Bytes(a.live_); });
}
Bytes AllocatorWitness::peak() const {
  return CountingAllocator::installed().locked([](auto& a) { return Bytes(a.peak_); });
}
void AllocatorWitness::reset_peak() {
  CountingAllocator::installed().locked([](auto& a) { a.peak_ = a.live_; });
}
std::int64_t AllocatorWitness::allocations() const {
  return CountingAllocator::installed().locked([](auto& a) { return a.allocations_; });
}

}  // namespace sc

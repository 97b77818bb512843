// Words in host memory that the ranks of a host share and their GPUs' streams wait for. Internal to comm.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace sc {

/// One step of a stream on a 32-bit word in mapped memory: wait until it has the value, or write the value.
struct WordOp {
  enum class Kind : std::uint8_t { wait, write };
  Kind kind;
  std::uintptr_t word;
  std::uint32_t value;
};
/// Enqueues `ops`, in order, as one stream operation, since each stream operation costs microseconds, most of
/// all in a graph. Calls the driver API directly, because LibTorch links the runtime alone.
///   Errors  DeviceError if the driver lacks these calls or refuses.
void enqueue(cudaStream_t stream, std::span<const WordOp> ops);

/// Waits until the work enqueued on `stream` has ended, for up to `limit`; false if it has not.
bool idle_within(cudaStream_t stream, std::chrono::milliseconds limit);

/// A page of host memory that several processes and their GPUs map. A new page holds zeros.
class SharedPage {
 public:
  struct alignas(64) Word {
    std::atomic<std::uint32_t> value;
  };
  static constexpr int kWords = 64;

  SharedPage();
  /// Opens the page of process `pid` by its file descriptor there.
  ///   Errors  DeviceError if it cannot be opened.
  SharedPage(std::int64_t pid, int file);
  /// Unmaps the page, unless it is `kept` because work on a GPU may still wait for a word.
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  [[nodiscard]] Word& word(int index) { return words_[index]; }
  [[nodiscard]] std::uintptr_t on_gpu(int index) const {
    return on_gpu_ + static_cast<std::size_t>(index) * sizeof(Word);
  }
  [[nodiscard]] int file() const { return file_; }
  void keep() { kept_ = true; }

 private:
  void map(int file);
  int file_ = -1;  // of a new page; -1 otherwise
  Word* words_ = nullptr;
  std::uintptr_t on_gpu_ = 0;
  bool kept_ = false;
};

}  // namespace sc

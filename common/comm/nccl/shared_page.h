// Words in memory of the host that ranks on it share, and that their GPUs' streams wait for and write.
// Internal to comm.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace sc {

/// What a stream does with a word of 32 bits in mapped memory: waits until it has the value, or writes it.
struct WordOp {
  enum class Kind : std::uint8_t { wait, write };
  Kind kind;
  std::uintptr_t word;
  std::uint32_t value;
};
/// One after the other, as one operation of the stream: each of those takes some us, most of all in a graph.
/// They are the driver's;
/// LibTorch links the runtime alone.
///   Errors  DeviceError if the driver has none or refuses.
void enqueue(cudaStream_t stream, std::span<const WordOp> ops);

/// Whether what has been enqueued ends within `limit`.
bool idle_within(cudaStream_t stream, std::chrono::milliseconds limit);

/// A page of host memory that several processes map, and their GPUs. Words begin as 0.
class SharedPage {
 public:
  struct alignas(64) Word {
    std::atomic<std::uint32_t> value;
  };
  static constexpr int kWords = 64;

  /// A new one.
  SharedPage();
  /// Another process's.  Errors: DeviceError if it cannot be opened.
  SharedPage(std::int64_t pid, int file);
  /// Gives the mapping back, unless it is `kept`: something on a GPU may still wait for a word.
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
  int file_ = -1;  // of a new one
  Word* words_ = nullptr;
  std::uintptr_t on_gpu_ = 0;
  bool kept_ = false;
};

}  // namespace sc

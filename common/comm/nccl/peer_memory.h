// What ranks on one host share beneath their messages and sums: words that GPUs' streams wait for, and each other's memory. Internal
// to comm.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

namespace sc {

/// A stream's memory operations are the driver's; LibTorch links the runtime alone. Words are 32 bits in mapped memory.
///   Errors  DeviceError if the driver has none or refuses.
void wait_for_word(cudaStream_t stream, std::uintptr_t word, std::uint32_t value);
void write_word(cudaStream_t stream, std::uintptr_t word, std::uint32_t value);

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

/// Memory of other processes' GPUs, each allocation opened once.
class PeerMemory {
 public:
  PeerMemory() = default;
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  /// The beginning of that rank's allocation.  Errors: DeviceError if it cannot be opened.
  const char* open(int rank, const cudaIpcMemHandle_t& handle);

 private:
  std::map<std::pair<int, std::vector<char>>, void*> open_;
};

}  // namespace sc

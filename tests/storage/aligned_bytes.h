// Memory with the alignment that BlockIo requires.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>

#include "common/storage/block_io.h"

namespace sc::test {

/// The block size, in bytes, of the files in these tests.
inline constexpr std::int64_t kBlock = 16 * 1024;

/// `size` aligned bytes, a multiple of kBlockAlign: zeros for seed 0, otherwise a pattern that `seed`
/// chooses.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::int64_t size, std::uint64_t seed = 0)
      : size_(static_cast<std::size_t>(size)),
        bytes_(static_cast<std::byte*>(std::aligned_alloc(kBlockAlign, size_))) {
    fill(seed);
  }
  void fill(std::uint64_t seed) {
    std::uint64_t state = seed;
    for (std::byte& byte : span()) {
      state = state * 6364136223846793005U + seed;  // 0 stays 0
      byte = static_cast<std::byte>(state >> 56);
    }
  }
  [[nodiscard]] std::span<std::byte> span() const { return {bytes_.get(), size_}; }
  bool operator==(const AlignedBytes& other) const {
    return std::equal(span().begin(), span().end(), other.span().begin(), other.span().end());
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::size_t size_;
  std::unique_ptr<std::byte, Free> bytes_;
};

}  // namespace sc::test

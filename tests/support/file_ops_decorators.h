// FileOps that count the calls of other FileOps, or let chosen calls fail. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "common/storage/hooked_file_ops.h"

namespace sc {

/// Counts successful calls of each kind, and their bytes.
class CountingFileOps final : public HookedFileOps {
 public:
  struct Count {
    std::int64_t calls = 0;
    Bytes bytes{0};
  };
  using HookedFileOps::HookedFileOps;
  [[nodiscard]] Count of(FileOp op) const;

 protected:
  void after(const FileCall& call, bool changed) override;

 private:
  mutable std::mutex mutex_;
  std::array<Count, kFileOps> counts_{};
};

/// Lets chosen calls fail as a real device would, by an InputError with errno's text. A failing write leaves
/// the first half of its data in the file.
class FaultyFileOps final : public HookedFileOps {
 public:
  struct Fault {
    std::optional<FileOp> op;        // empty: any mutating call
    std::int64_t nth = 0;            // 0-based among the calls that match
    int error = 0;                   // errno: ENOSPC, EIO, ...
    bool lasting = false;            // and all matching calls after it
    std::string path_contains = {};  // only calls on such paths
  };
  FaultyFileOps(FileOps& inner, Fault fault) : HookedFileOps(inner), fault_(std::move(fault)) {}

 protected:
  void before(const FileCall& call) override;

 private:
  Fault fault_;
  std::mutex mutex_;
  std::int64_t matched_ = 0;
};

}  // namespace sc

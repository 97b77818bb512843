// The disk as home of this rank's slice of the parameters, which is read ahead of each gather and written by
// each update.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "param_home.h"
#include "state_file.h"

namespace sc {

/// Parameters lie behind the states in their file, in extent first_extent + version % versions * pieces +
/// piece. The newest version is there, and with update=delayed also the one before it.
class ParamsOnDisk final : public ParamHome {
 public:
  struct Setting {
    StateFile& file;
    const Window& window;
    std::size_t first_extent = 0;
    std::int64_t versions = 1;
    /// By buffer of the window, in whole blocks: parameters on their way to the disk.
    std::vector<at::Tensor> out;
    /// As many as are read ahead, pinned, in whole blocks: parameters on their way from the disk.
    std::vector<at::Tensor> in;
  };
  explicit ParamsOnDisk(Setting setting);
  at::Tensor destination(std::size_t piece, std::int64_t version) override;
  void written(std::size_t piece, std::int64_t version,
               const std::shared_ptr<const HostPiece>& work) override;
  [[nodiscard]] bool left(Number number, const HostOptimizer& host) const override;
  void keep_first_values(std::size_t piece, const at::Tensor& master) override;
  void expect(const std::vector<std::size_t>& pieces) override;
  at::Tensor bring(std::size_t piece, std::int64_t version) override;
  void sent(OpEnd end) override;
  std::shared_ptr<StateValues> values(std::size_t piece, std::int64_t version) override;
  [[nodiscard]] Place place() const override { return Place::disk; }

 private:
  friend class ParamsOfExtent;
  struct Stored {
    std::int64_t version = 0;
    OpEnd end;
  };
  struct Arriving {
    std::size_t piece, buffer;
    Ticket read;
  };
  [[nodiscard]] std::size_t extent_of(std::size_t piece, std::int64_t version) const;
  [[nodiscard]] std::span<std::byte> bytes(const at::Tensor& buffer, std::size_t piece) const;
  [[nodiscard]] Stored stored(std::size_t piece, std::int64_t version) const;
  void start_reading(std::size_t piece, std::int64_t version);
  void read_ahead(std::int64_t version);

  const Setting its_;
  mutable std::mutex mutex_;
  /// By extent from first_extent on: what was written there last. Both threads use it, under the mutex.
  std::vector<Stored> stored_;
  /// By buffer of `out`: its last write. The thread that updates has it alone.
  std::vector<OpEnd> out_;
  // All that follows is used by the strategy's thread alone.
  /// Pieces whose reads have not begun, in the order of their gathers, and reads that have.
  std::deque<std::size_t> expected_;
  std::deque<Arriving> arriving_;
  /// By buffer of `in`: its last copy to the device.
  std::vector<OpEnd> sent_;
  /// Numbers of buffers of `in`: the next one that is read into, and the one that bring() has handed out.
  std::size_t next_in_ = 0, sending_ = 0;
};

}  // namespace sc

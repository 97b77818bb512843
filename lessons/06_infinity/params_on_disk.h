// This rank's slice of the parameters on the disk: read ahead of each gather, written by each update.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "param_home.h"
#include "state_file.h"

namespace sc {

/// Behind the states in their file: extent first_extent + version % versions * pieces + piece. Of as many
/// versions as there is room for the newest ones are there: one, or two where updates are delayed.
class ParamsOnDisk final : public ParamHome {
 public:
  struct Setting {
    StateFile& file;
    const Window& window;
    std::size_t first_extent = 0;
    std::int64_t versions = 1;
    std::vector<at::Tensor> out;  // by the window's buffers: on their way to the disk; of whole blocks
    std::vector<at::Tensor> in;   // pinned, as many as are read ahead; of whole blocks
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
  mutable std::mutex mutex_;    // for stored_
  std::vector<Stored> stored_;  // by extent, less first_extent
  std::vector<OpEnd> out_;      // by buffer of `out`: its last write. The thread that updates
  // The strategy's thread:
  std::deque<std::size_t> expected_;
  std::deque<Arriving> arriving_;
  std::vector<OpEnd> sent_;  // by buffer of `in`
  std::size_t next_in_ = 0, sending_ = 0;
};

}  // namespace sc

// Where this rank's slice of the parameters lies if the device does not keep it: params_at=host and params_at=disk.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "common/comm/disk/recorded_file.h"
#include "common/strategy/state_slice.h"

namespace sc {

/// A version of a piece's parameters is a number of updates. Of as many versions as there is room for the newest
/// ones are there: one, or two where updates are delayed.
class ParamHome {
 public:
  virtual ~ParamHome() = default;
  [[nodiscard]] virtual Place place() const = 0;
  /// Once in the beginning: what is in landing(piece, 0, buffer) is there to stay.
  virtual void keep_first_values(std::size_t /*piece*/, std::size_t /*buffer*/) {}
  // The thread that updates:
  /// [n]: where an update leaves a piece's parameters. buffer: of the window.
  virtual at::Tensor landing(std::size_t piece, std::int64_t version, std::size_t buffer) = 0;
  /// They have landed there. The ticket's end frees that buffer.
  virtual Ticket store(std::size_t /*piece*/, std::int64_t /*version*/, std::size_t /*buffer*/) { return {}; }
  // The strategy's thread:
  /// These pieces will be brought, in this order, and no others before all of them have been.
  virtual void expect(const std::vector<std::size_t>& /*pieces*/) {}
  /// [n], pinned: a version that has been stored. sent() says when it has been read: before the next call.
  virtual at::Tensor bring(std::size_t piece, std::int64_t version) = 0;
  virtual void sent(OpEnd /*end*/) {}
  /// While neither thread does anything.
  virtual std::shared_ptr<StateValues> values(std::size_t piece, std::int64_t version) = 0;
};

/// In host memory; arenas: one for each version that is kept, [all pieces, behind each other].
class ParamsInMemory final : public ParamHome {
 public:
  ParamsInMemory(std::vector<at::Tensor> arenas, const std::vector<std::int64_t>& sizes);
  [[nodiscard]] Place place() const override { return Place::pinned; }
  at::Tensor landing(std::size_t piece, std::int64_t version, std::size_t /*buffer*/) override {
    return at(piece, version);
  }
  at::Tensor bring(std::size_t piece, std::int64_t version) override { return at(piece, version); }
  std::shared_ptr<StateValues> values(std::size_t piece, std::int64_t version) override {
    return in_tensor(at(piece, version));
  }

 private:
  [[nodiscard]] at::Tensor at(std::size_t piece, std::int64_t version) const;
  const std::vector<at::Tensor> arenas_;
  const std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> begins_;
};

/// On the disk, behind the states in their file: extent first_extent + version % versions * pieces + piece.
class ParamsOnDisk final : public ParamHome {
 public:
  struct Setting {
    BlockFile& file;
    RecordedFile& transfers;  // of it
    std::size_t first_extent = 0;
    std::int64_t versions = 1;
    std::int64_t first_step = 0;      // of the run, which made version 0
    std::vector<std::int64_t> sizes;  // elements of the pieces
    std::vector<at::Tensor> out;      // by the window's buffers: on their way to the disk; of whole blocks
    std::vector<at::Tensor> in;       // pinned, as many as are read ahead; of whole blocks
  };
  explicit ParamsOnDisk(Setting setting);
  [[nodiscard]] Place place() const override { return Place::disk; }
  void keep_first_values(std::size_t piece, std::size_t buffer) override;
  at::Tensor landing(std::size_t piece, std::int64_t version, std::size_t buffer) override;
  Ticket store(std::size_t piece, std::int64_t version, std::size_t buffer) override;
  void expect(const std::vector<std::size_t>& pieces) override;
  at::Tensor bring(std::size_t piece, std::int64_t version) override;
  void sent(OpEnd end) override;
  std::shared_ptr<StateValues> values(std::size_t piece, std::int64_t version) override;

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
  [[nodiscard]] Stored stored(std::size_t piece, std::int64_t version);
  void start_reading(std::size_t piece, std::int64_t version);
  void read_ahead(std::int64_t version);

  const Setting its_;
  std::mutex mutex_;            // for stored_
  std::vector<Stored> stored_;  // by extent, less first_extent
  // The strategy's thread:
  std::deque<std::size_t> expected_;
  std::deque<Arriving> arriving_;
  std::vector<OpEnd> sent_;  // by buffer of `in`
  std::size_t next_in_ = 0, sending_ = 0;
};

}  // namespace sc

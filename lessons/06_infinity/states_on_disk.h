// Optimizer states on a disk: pieces come into a window of a few buffers, are updated there, and go back.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/offload/host_optimizer.h"
#include "param_home.h"
#include "state_file.h"
#include "window.h"

namespace sc {

/// Pieces pass through the window in forward's order, update after update:
///   read    of a number begins when what was in its buffer before has been written, and its parameters
///           have left the window
///   update  when it is there, its gradient has landed, and the norm is known
///   write   right after
/// So with three buffers piece i + 1 is read and piece i - 1 written while piece i is updated; with one
/// nothing overlaps.
class StatesOnDisk final : public StateStore {
 public:
  /// The states' extents are the file's first ones.
  StatesOnDisk(const Window& window, StateFile& file, const ParamHome& params);
  bool fetch_ahead(const HostOptimizer& host) override;
  [[nodiscard]] bool fetched(Number number) const override;
  PieceStates states(Number number) override;
  void put_back(Number number, const std::shared_ptr<const HostPiece>& work) override;

  // The strategy's thread calls these before the first update. A piece's states are zeros and a master, which
  // is filled in; then they are written to the disk, and the last writes are waited for.
  at::Tensor first_master(std::size_t piece);
  void write_first(std::size_t piece);
  void wait_first();

  // The strategy's thread calls these between steps.
  /// Access to one of a piece's three vectors. also: a copy of the same values elsewhere, which is written
  /// too, or null.
  std::shared_ptr<StateValues> values(const HostOptimizer& host, std::size_t piece, int vector,
                                      std::shared_ptr<StateValues> also = {});
  /// Called before the host goes on: values() pass through the window's first buffer, and what had been read
  /// ahead into that is read again.
  void give_first_buffer_back();

 private:
  friend class VectorOnDisk;
  [[nodiscard]] bool free(Number before, const HostOptimizer& host) const;
  [[nodiscard]] PieceStates vectors(std::size_t buffer, std::size_t piece) const;
  [[nodiscard]] std::span<std::byte> bytes(std::size_t buffer, std::size_t piece) const;
  [[nodiscard]] What what(std::size_t piece) const { return {OpPurpose::states, window_.units[piece]}; }
  [[nodiscard]] at::Tensor in_first_buffer(const HostOptimizer& host, std::size_t piece);

  const Window& window_;
  StateFile& file_;
  const ParamHome& params_;
  /// By buffer of the window: the last read into it, and the last write out of it.
  std::vector<OpEnd> read_, written_;
  /// The host's thread counts these on; between steps it does nothing, and the strategy's thread reads them.
  Number next_read_ = 0, next_update_ = 0;
  /// The piece that values() have left in the first buffer.
  std::optional<std::size_t> borrowed_;
};

}  // namespace sc

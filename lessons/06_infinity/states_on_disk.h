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
///   read    begins when the states that were in the buffer have been written, and their parameters sent
///   update  begins when the states are there, the piece's gradient has landed, and the norm is known
///   write   begins when the update has ended
/// So with three buffers piece i + 1 is read and piece i - 1 written while piece i is updated; with one
/// nothing overlaps.
class StatesOnDisk final : public StateStore {
 public:
  /// Extent i of `file` has the states of piece i; other extents come after these.
  StatesOnDisk(const Window& window, StateFile& file, const ParamHome& params);
  bool fetch_ahead(const HostOptimizer& host) override;
  [[nodiscard]] bool fetched(Number number) const override;
  PieceStates states(Number number) override;
  void put_back(Number number, const std::shared_ptr<const HostPiece>& work) override;

  // The strategy's thread calls these before the first update: first_master() returns a master to be filled
  // in, write_first() writes it and zero moments to the disk, wait_first() waits for the last writes.
  at::Tensor first_master(std::size_t piece);
  void write_first(std::size_t piece);
  void wait_first();

  // The strategy's thread calls these between steps.
  /// Access to a piece's master (vector 0), momentum (1) or variance (2). also: where the same values lie
  /// besides, which is written, too, or null.
  std::shared_ptr<StateValues> values(const HostOptimizer& host, std::size_t piece, int vector,
                                      std::shared_ptr<StateValues> also = {});
  /// Called before the host goes on: values() pass through the window's first buffer, so states that had been
  /// read ahead into it are read again.
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
  /// The next numbers to read and to update: the host's thread counts, the strategy's looks between steps.
  Number next_read_ = 0, next_update_ = 0;
  /// The piece that values() have left in the first buffer.
  std::optional<std::size_t> borrowed_;
};

}  // namespace sc

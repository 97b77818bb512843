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

/// In forward's order, update after update:
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

  // The strategy's thread, before the first update: zeros, and a piece's master to fill in; then both to the
  // disk.
  at::Tensor first_master(std::size_t piece);
  void write_first(std::size_t piece);
  void wait_first();

  // The same, between steps:
  /// One of a piece's three vectors. also: a copy of the same values elsewhere, or null.
  std::shared_ptr<StateValues> values(const HostOptimizer& host, std::size_t piece, int vector,
                                      std::shared_ptr<StateValues> also = {});
  /// Before the host goes on: values() pass through the window's first buffer, and what had been read ahead
  /// into that is read again.
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
  std::vector<OpEnd> read_, written_;       // by buffer, of what is in it
  Number next_read_ = 0, next_update_ = 0;  // the host's thread; between steps it does nothing
  std::optional<std::size_t> borrowed_;     // whose states are in the first buffer
};

}  // namespace sc

// The optimizer on the host with states on a disk: pieces come into a window of a few buffers, are updated there, and go
// back, in forward's order, update after update.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/host_pool.h"
#include "common/comm/disk/recorded_file.h"
#include "common/strategy/strategy.h"
#include "lessons/05_offload/host_update.h"
#include "param_home.h"
#include "step_clock.h"

namespace sc {

/// The memory that a StreamedUpdate works with; all of it the host's.
struct StateWindow {
  std::vector<at::Tensor>
      states;  // by buffer: [extent / 4] fp32, aligned to kBlockAlign: master, momentum, variance
  std::vector<at::Tensor>
      grads;  // by buffer, where gradients come from the device at their piece's turn; or none
  std::vector<at::Tensor> params;  // by buffer, 16-bit parameters on their way to the device; or none
};

/// A rank's file, and what counts and times what goes over it.
struct StateFile {
  StateFile(std::shared_ptr<FileOps> file_ops, const BlockFile::Options& options,
            const std::vector<Bytes>& extents, std::shared_ptr<CommRecord> record);
  const std::shared_ptr<FileOps> ops;
  BlockFile blocks;
  StepClock clock;
  RecordedFile transfers;
  std::vector<std::shared_ptr<void>> reserved;  // the ledger's bytes
};

/// A piece's place in the endless row of pieces: update u, piece i is number u * pieces + i, in buffer number % buffers.
///   read    of a number begins when what was in its buffer before has been written, and sent
///   update  when it is there, its gradient has landed, and the norm is known
///   write   right behind
/// So with three buffers piece i + 1 is read and piece i - 1 written while piece i is updated; with one nothing
/// overlaps. All of an update's transfers count for the step behind the one that posted it: end_step() waits for them.
class StreamedUpdate final : public PieceUpdates {
 public:
  /// How new parameters come to the device: out of the window, which keeps a buffer until then; once a step from
  /// Piece::params; or out of a ParamHome whenever the strategy gathers them.
  enum class Delivery { from_window, once_a_step, by_gathers };
  struct Setting {
    RunContext& context;
    AdamWHyper hyper;
    int threads = 1;
    std::function<void(std::size_t piece, at::Tensor& master)> first_values;
  };
  /// pieces: with `grads`, and `params` (Delivery::once_a_step), where those have memory of their own beside the window.
  /// home: of parameters by gathers; or null. Writes all of the file once: pieces' extents are its first ones.
  StreamedUpdate(std::vector<Piece> pieces, StateWindow window, std::unique_ptr<StateFile> file,
                 std::unique_ptr<ParamHome> home, const Setting& setting);
  ~StreamedUpdate() override;

  [[nodiscard]] bool takes_gradients_in_backward() const override { return window_.grads.empty(); }
  void post(UpdateOrder order) override;
  [[nodiscard]] bool ready(std::size_t piece, std::int64_t updates) override;
  std::shared_ptr<const HostPiece> wait(std::size_t piece, std::int64_t updates) override;
  [[nodiscard]] bool to_send(std::size_t piece, std::int64_t updates) override;
  [[nodiscard]] std::optional<std::int64_t> step_of_sending(std::size_t piece, std::int64_t updates) override;
  [[nodiscard]] at::Tensor params(std::size_t piece, std::int64_t updates) override;
  void expect(const std::vector<std::size_t>& pieces) override;
  void sent(std::size_t piece, OpEnd end, bool in_step) override;
  void release() override;
  void begin_step() override;
  void end_step() override;
  std::vector<StateSlice> state(int turn) override;
  [[nodiscard]] std::vector<Timetable::Share> time_of_a_step() override { return file_->clock.of_a_step(); }

  /// Bytes of a piece's extent: three vectors, up to kBlockAlign.
  static Bytes extent_of(std::int64_t elements) { return Bytes(round_up(12 * elements, kBlockAlign)); }

 private:
  friend class StatesOnDisk;
  struct State {
    std::int64_t updates = 0, sends = 0;
    std::shared_ptr<const HostPiece> work;  // of the last update
    OpEnd sent;
  };
  /// Transfers of one update, in order.
  struct Transfers {
    std::int64_t update = 0;
    std::vector<Ticket> tickets;
  };
  /// [n] of a buffer's three vectors.
  struct Vectors {
    at::Tensor master, momentum, variance;
  };
  void write_first_values(const std::function<void(std::size_t, at::Tensor&)>& first_values);
  void run(const std::stop_token& stop);
  void apply(const UpdateOrder& order, const std::stop_token& stop);
  bool read_up_to(std::int64_t number, const std::stop_token& stop);
  bool wait_until(const std::stop_token& stop, const std::function<bool()>& what);
  void update(std::int64_t number, const UpdateOrder& order, const AdamWFactors& factors);
  [[nodiscard]] at::Tensor landing_of_params(std::int64_t number) const;
  void land_gradients(std::int64_t number);
  void settle();
  [[nodiscard]] at::Tensor in_first_buffer(std::size_t piece);
  void give_first_buffer_back();
  [[nodiscard]] bool may_begin(std::int64_t number, const UpdateOrder& order) const;
  [[nodiscard]] bool left(std::int64_t number) const;
  [[nodiscard]] OpEnd end_of_sending(std::int64_t number);
  [[nodiscard]] Vectors vectors(std::int64_t number) const;
  [[nodiscard]] std::span<std::byte> bytes(std::int64_t number) const;
  [[nodiscard]] at::Tensor grad_of(std::int64_t number, const UpdateOrder& order) const;
  /// Of a piece in the last of `updates` updates.
  [[nodiscard]] std::int64_t number_of(std::size_t piece, std::int64_t updates) const {
    return (updates - 1) * static_cast<std::int64_t>(pieces_.size()) + static_cast<std::int64_t>(piece);
  }
  [[nodiscard]] std::size_t piece_of(std::int64_t number) const {
    return static_cast<std::size_t>(number % static_cast<std::int64_t>(pieces_.size()));
  }
  [[nodiscard]] std::int64_t update_of(std::int64_t number) const {
    return number / static_cast<std::int64_t>(pieces_.size());
  }
  /// Of the run, for which a number's transfers count.
  [[nodiscard]] std::int64_t step_of(std::int64_t number) const {
    return context_.first_step + update_of(number) + 1;
  }
  [[nodiscard]] std::size_t buffer_of(std::int64_t number) const {
    return static_cast<std::size_t>(number % static_cast<std::int64_t>(window_.states.size()));
  }
  [[nodiscard]] bool sends_from_window() const { return delivery_ == Delivery::from_window; }
  void keep(std::int64_t update, Ticket ticket);

  RunContext& context_;
  const AdamWHyper hyper_;
  const Delivery delivery_;
  const StateWindow window_;
  const std::unique_ptr<StateFile> file_;
  const std::unique_ptr<ParamHome> home_;
  std::vector<OpEnd> read_, written_, stored_;  // by buffer, of what is in it. The thread's
  std::int64_t next_read_ = 0;                  // number. The thread's
  std::vector<OpEnd> landed_;                   // by buffer: its gradient
  std::int64_t next_landing_ = 0;               // number
  std::optional<std::size_t> borrowed_;         // whose states are in the first buffer, for state()

  std::mutex mutex_;  // for what follows
  std::condition_variable_any changed_;
  std::vector<State> states_;  // by piece
  std::vector<Transfers> kept_;
  std::deque<UpdateOrder> orders_;
  std::int64_t posted_ = 0, done_ = 0;  // updates
  std::int64_t steps_begun_ = 0;
  bool idle_ = true, released_ = false;
  bool put_off_ = false;  // the thread waits for the next step
  std::exception_ptr error_;
  HostPool pool_;
  std::jthread thread_;  // last: ends first
};

}  // namespace sc

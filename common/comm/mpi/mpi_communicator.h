// Ranks as processes, on one host or several, over MPI. Does not include mpi.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/comm/communicator.h"

namespace sc {

class MpiEngine;
struct ExchangeOn;
struct MpiGroup;
struct MpiOperation;
class DropCounter;

/// Allocates a u8 tensor of that many bytes in host memory; a run counts it as Purpose::communication.
using ScratchAllocator = std::function<at::Tensor(Bytes)>;

/// CPU tensors over MPI. All groups of a process share one thread, the only one that calls MPI.
///   Progress    Isend, Irecv and Testsome, so that a pending receive blocks nothing. Collectives of a group
///               run one after another in issue order; different groups and messages run at the same time.
///   Sums        reduce_scatter exchanges pieces of 256 KiB between all pairs and sums them in rank order, so
///               results equal those of Local, bit for bit. all_reduce does that and then exchanges the
///               slices (slice_of), in place.
///   Wire bytes  exactly wire_bytes(). A broadcast is a chain.
///   Scratch     allocated once per group, at construction or split.
///   Errors      a message of unexpected length is a DeviceError, and so is every later operation of that
///               group. Ranks that otherwise issue different operations wait until the watchdog ends the run.
class MpiCommunicator : public Communicator {
 public:
  [[nodiscard]] Rank rank() const override;
  [[nodiscard]] WorldSize size() const override;
  void barrier() override;
  void abort() noexcept override;
  std::unique_ptr<Communicator> split(int color) override;
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override;
  [[nodiscard]] std::int64_t dropped_tickets() const override;

 private:
  friend class MpiWorld;
  MpiCommunicator(std::shared_ptr<MpiEngine> engine, std::shared_ptr<MpiGroup> group,
                  ScratchAllocator scratch, std::shared_ptr<DropCounter> drops);
  [[nodiscard]] std::shared_ptr<MpiOperation> operation(const std::string& text, const Operation& op,
                                                        const ExchangeOn& on) const;
  /// Blocks until all ranks of the group have called it; `what` is for error messages.
  void meet(const char* what);

  std::shared_ptr<MpiEngine> engine_;
  std::shared_ptr<MpiGroup> group_;
  ScratchAllocator scratch_;
  std::shared_ptr<DropCounter> drops_;
};

/// MPI from its start to its end. A process makes at most one, and only under a launcher (watch/launch.h).
class MpiWorld {
 public:
  /// Starts the thread that calls MPI, and in it MPI.
  ///   Errors  DeviceError if MPI does not start.
  explicit MpiWorld(ScratchAllocator scratch);
  /// Ends MPI, which waits for all ranks. While an exception passes, or after abort() of the world's
  /// communicator, the process leaves without ending MPI, and mpirun ends the other ranks. Communicators must
  /// be destroyed first; an operation issued afterwards throws AbortedError.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] WorldSize size() const;
  /// A handle on the group of all ranks. The first call allocates the group's scratch.
  [[nodiscard]] std::unique_ptr<Communicator> world();
  /// Ends all ranks of the job within 1 s, with `exit_code` (under mpirun with mpirun's code). Any thread may
  /// call it.
  [[noreturn]] void abort_job(int exit_code) noexcept;

 private:
  std::shared_ptr<MpiEngine> engine_;
  std::shared_ptr<MpiGroup> group_;
  ScratchAllocator scratch_;
  std::shared_ptr<DropCounter> drops_;
  int exceptions_ = 0;
};

}  // namespace sc

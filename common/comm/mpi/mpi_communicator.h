// Ranks as processes, on one host or many, over MPI. No mpi.h in here.
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

/// A u8 tensor of that many bytes in host memory (run asks the ledger, Purpose::communication).
using ScratchAllocator = std::function<at::Tensor(Bytes)>;

/// CPU tensors over MPI. All groups of a process share one thread, the only one that calls MPI; the callers
/// never do.
///   Progress    Isend, Irecv and Testsome: a pending receive blocks nothing. Collectives of a group run one
///               after the other in issue order; different groups and messages run beside each other.
///   Sums        reduce_scatter exchanges pieces of 256 KiB between all pairs and sums them in rank order, so
///               results are those of Local, bit for bit. all_reduce = that, then an exchange of the slices
///               (slice_of), in place.
///   Wire bytes  exactly wire_bytes(). A broadcast is a chain.
///   Scratch     allocated once for each group, at construction or split.
///   Errors      a message of a length that was not expected is a DeviceError, and so is everything later on
///               that group. Ranks that issue different operations otherwise wait for each other: the
///               watchdog ends that.
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
  /// A new operation of this group.
  [[nodiscard]] std::shared_ptr<MpiOperation> operation(const std::string& text, const Operation& op,
                                                        const ExchangeOn& on) const;
  /// Waits for all ranks.
  void meet(const char* what);

  std::shared_ptr<MpiEngine> engine_;
  std::shared_ptr<MpiGroup> group_;
  ScratchAllocator scratch_;
  std::shared_ptr<DropCounter> drops_;
};

/// MPI from its start to its end: make one a process, when a launcher has been found (comm/launch.h).
class MpiWorld {
 public:
  /// Starts the MPI thread and MPI.  Errors: DeviceError.
  explicit MpiWorld(ScratchAllocator scratch);
  /// Ends MPI, which waits for all ranks. Not so while an exception passes or after the world's abort(): then
  /// this process leaves without, and mpirun ends the others. Communicators go before; an operation after it
  /// throws AbortedError.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  [[nodiscard]] Rank rank() const;
  [[nodiscard]] WorldSize size() const;
  /// The group of all ranks. Allocates its scratch; each call makes a handle on the same group with scratch
  /// allocated once.
  [[nodiscard]] std::unique_ptr<Communicator> world();
  /// Ends all ranks of the job with that exit code (under mpirun it becomes mpirun's), at the latest after 1
  /// s. Any thread.
  [[noreturn]] void abort_job(int exit_code) noexcept;

 private:
  std::shared_ptr<MpiEngine> engine_;
  std::shared_ptr<MpiGroup> group_;
  ScratchAllocator scratch_;
  std::shared_ptr<DropCounter> drops_;
  int exceptions_ = 0;
};

}  // namespace sc

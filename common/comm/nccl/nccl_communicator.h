// Ranks as processes with one GPU each, over NCCL. No nccl.h, no CUDA in here; a build without GPU code has
// the same functions, which refuse.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "common/comm/forwarding_communicator.h"

struct CUevent_st;

namespace sc {

struct NcclGroup;
class NcclChannel;
struct NcclEnd;
class NcclPairs;
class PeerSums;
class DropCounter;

struct NcclOptions {
  int device = 0;  // this rank's GPU (gpu_of in nccl_devices.h)
  /// How long NCCL may take to accept an operation or to connect. The watchdog's limit is shorter and its
  /// message better; this one is for programs without.
  std::chrono::milliseconds limit{120'000};
  /// While it is true: also measure when operations run (gpu_moment.h); waits are measured always. Null:
  /// never.
  std::shared_ptr<const std::atomic<bool>> trace = {};
  /// Messages between GPUs of one host go by copy engine, where the other side's memory can be opened. All
  /// ranks say the same.
  bool messages_by_copy = true;
  /// The same for sums and gathers of what lies in a window for sums (PeerSums), where every rank can open
  /// every other's memory.
  bool sums_by_copy = true;
};

/// GPU tensors over NCCL.
///   Host      `host` is a communicator of the same ranks for CPU tensors (MpiCommunicator; Local for one
///             rank). NCCL's ids travel over it, barrier() is its barrier, and operations on CPU tensors are
///             handed to it.
///   Streams   collectives have one NCCL communicator with a high-priority stream, and each directed pair of
///             ranks one more, which both sides make when they first use it. A message that comes before the
///             other side is there waits in a queue, so that it blocks neither the caller nor another
///             operation.
///   Messages  between GPUs of one host by copy engine, so that neither a receive that waits nor a message
///             that travels takes anything from what computes; 32 MiB of the sender's GPU a pair. Elsewhere
///             over NCCL, where a receive that has been issued occupies some SMs until it is matched.
///   Tickets   CUDA events. wait() makes the caller's current stream wait, and blocks the host only while a
///             pair is not connected yet. ready() asks the event.
///   Times     two events with timing a wait, on the stream that waits; with `trace` two more an operation,
///             on its own stream. In a graph they are nodes of it.
///   Sums      in NCCL's order, which is the same from run to run on the same machine. In rank order, as
///             Communicator says: fp64 sums of up to 32 numbers, and all of a group that has a window for
///             sums (PeerSums). No other reduction.
///   Zero      operations of no element are not issued, and their tickets are empty.
///   Graphs    operations can be captured, and their tickets waited for in the same capture, when the same
///             operations (for messages: the same pairs) have run before. A graph is destroyed before the
///             communicator: NCCL keeps its memory otherwise, and the destructor says so.
///   Hangs     no call blocks inside NCCL. abort() may come from any thread and ends kernels that wait for a
///             rank that is gone; tickets then throw AbortedError. Once a window was made, by it, by a part
///             of it or by what it was split from, tickets throw as before, but what waits on the GPU ends
///             with the process.
///   Memory    NCCL's own buffers, and windows, outside LibTorch's allocator; all given back by the
///             destructor, a window by its last owner.
///   Errors    besides those of Communicator: InputError 69 if the NCCL that was loaded is older than its
///             header; DeviceError if NCCL reports an error or exceeds `limit`, or for the first message of a
///             pair in a capture.
class NcclCommunicator : public ForwardingCommunicator {
 public:
  /// Collective over `host`. Makes the GPU current, and connects all ranks before it returns. Calls
  /// set_nccl_environment() (nccl_devices.h).
  static std::unique_ptr<Communicator> make(std::unique_ptr<Communicator> host, const NcclOptions& options);
  ~NcclCommunicator() override;

  void abort() noexcept override;
  std::unique_ptr<Communicator> split(int color) override;
  std::shared_ptr<void> window(Bytes bytes, WindowUse use) override;
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override;
  [[nodiscard]] std::int64_t dropped_tickets() const override;

 private:
  NcclCommunicator(std::unique_ptr<Communicator> host, const NcclOptions& options, NcclGroup* parent,
                   std::shared_ptr<DropCounter> drops);
  void connect();
  void make_peers();
  void make_gathered();
  void warm_up();
  void warm_up_copies(char* window);
  void wait_for(const NcclEnd& end);
  NcclEnd on_nccl(const std::shared_ptr<CUevent_st>& start, const Operation& op, const at::Tensor& from,
                  const at::Tensor& to, std::optional<Rank> root);

  const NcclOptions options_;
  std::shared_ptr<DropCounter> drops_;
  std::shared_ptr<NcclGroup> group_;
  std::shared_ptr<NcclChannel> collectives_;
  std::shared_ptr<double> gathered_;  // small sums of all ranks; null where two have but one order
  std::shared_ptr<PeerSums> sums_;    // null where nothing is left to it
  bool has_windows_ = false;
  std::unique_ptr<NcclPairs> pairs_;  // last: its thread ends first
};

/// Marks the work issued so far on the current stream of the current GPU: the function says whether it has
/// ended, from any thread. For CommRecord::replayed(), after a graph was launched.
std::function<bool()> ended_on_current_stream();

}  // namespace sc

// Ranks as processes with one GPU each, over NCCL. Includes neither nccl.h nor CUDA; in a build without GPU
// code the same functions refuse.
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
  /// How long NCCL may take to accept an operation or to connect, for programs without a watchdog; the
  /// watchdog's limit is shorter and its message better.
  std::chrono::milliseconds limit{120'000};
  /// Whether the GPU also measures when operations run (gpu_moment.h); waits always. Null: never.
  std::shared_ptr<const std::atomic<bool>> trace = {};
  /// Whether messages between GPUs of one host go by copy engine, if the receiver can open the sender's
  /// memory. All ranks must agree.
  bool messages_by_copy = true;
  /// Whether sums and gathers in windows go by copy engine (PeerSums), if every rank can open every other
  /// rank's memory. All ranks must agree.
  bool sums_by_copy = true;
};

/// GPU tensors over NCCL.
///   Host      `host` is a communicator of the same ranks for CPU tensors (Mpi, or Local for one). NCCL's ids
///             travel over it, barrier() is its barrier, and operations on CPU tensors are handed to it.
///   Streams   collectives have one NCCL communicator with a high-priority stream. Each directed pair of
///             ranks has another one, which both sides make at its first use. A message that comes before the
///             other side is there waits in a queue, so that it blocks neither the caller nor another
///             operation.
///   Messages  between GPUs of one host go by copy engine, so that neither a waiting receive nor a message in
///             transit takes multiprocessors from the computation; 32 MiB of the sender's GPU per pair.
///             Elsewhere they go over NCCL, where an issued receive occupies some SMs until it is matched.
///   Tickets   CUDA events. wait() makes the caller's current stream wait, and blocks the host only while a
///             pair is not yet connected. ready() queries the event.
///   Times     two timed events per wait, on the waiting stream; with `trace` two more per operation, on its
///             own stream. In a graph they are nodes of the graph.
///   Sums      in NCCL's order, which is the same from run to run on the same machine. In rank order, as in
///             Communicator, are fp64 sums of up to 32 numbers, and all sums of a group with a window for
///             sums (PeerSums). There is no other reduction than the sum.
///   Zero      operations without elements are not issued, and their tickets are empty.
///   Graphs    operations can be captured, and their tickets waited for in the same capture, if the same
///             operations (for messages: the same pairs) have run before. A graph must be destroyed before
///             the communicator: otherwise NCCL keeps its memory, and the destructor says so.
///   Hangs     no call blocks inside NCCL. abort() may come from any thread; it ends kernels that wait for a
///             missing rank, and tickets then throw AbortedError. Once this group, a split of it or one that
///             it was split from has made a window, tickets still throw, but what waits on the GPU ends only
///             with the process.
///   Memory    NCCL's own buffers and windows lie outside LibTorch's allocator. The destructor frees the
///             buffers, a window's last owner the window.
///   Errors    besides those of Communicator: InputError 69 if the loaded NCCL is older than its header;
///             DeviceError if NCCL reports an error or exceeds `limit`, or for the first message of a pair in
///             a capture.
class NcclCommunicator : public ForwardingCommunicator {
 public:
  /// Collective over `host`. Makes the GPU current, calls set_nccl_environment() (nccl_devices.h), and
  /// connects all ranks before it returns.
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
  // Where small sums of all ranks are gathered; null for up to two ranks, which have only one order.
  std::shared_ptr<double> gathered_;
  std::shared_ptr<PeerSums> sums_;  // null if copy engines do no sums
  bool has_windows_ = false;
  std::unique_ptr<NcclPairs> pairs_;  // declared last, so that its thread ends first
};

/// A function that says, on any thread, whether the work issued until now on the current GPU's current stream
/// has ended. CommRecord::replayed() takes it after a graph was launched.
std::function<bool()> ended_on_current_stream();

}  // namespace sc

#include "common/comm/mpi/mpi_communicator.h"

#include <exception>

#include "common/comm/host_ticket.h"
#include "common/comm/mpi/mpi_check.h"
#include "common/comm/mpi/mpi_engine.h"
#include "common/comm/op_check.h"
#include "common/comm/scratch.h"

namespace sc {
namespace {

/// Makes the two MPI communicators of a group out of `comm`. MPI thread only. They live until MPI ends: to
/// free one is a collective, and a rank that drops its group does not wait for the others.
void form_group(MpiGroup& group, MPI_Comm comm) {
  int rank = 0, size = 0;
  for (MPI_Comm* own : {&group.collectives, &group.messages}) {
    SC_CHECK(MpiStatus{MPI_Comm_dup(comm, own)});
    SC_CHECK(MpiStatus{MPI_Comm_set_errhandler(*own, MPI_ERRORS_RETURN)});
  }
  SC_CHECK(MpiStatus{MPI_Comm_rank(comm, &rank)});
  SC_CHECK(MpiStatus{MPI_Comm_size(comm, &size)});
  group.rank = Rank{rank};
  group.world = WorldSize{size};
}

void allocate_scratch(MpiGroup& group, const ScratchAllocator& allocate) {
  const Bytes bytes = mpi_scratch_bytes(group.world);
  if (bytes.value() > 0 && !group.scratch.defined()) group.scratch = allocate(bytes);
}

void* scratch_of(const MpiGroup& group) {
  return group.scratch.defined() ? group.scratch.mutable_data_ptr() : nullptr;
}

}  // namespace

/// An operation that is being put together, and its ticket.
class MpiCommunicator::Issue {
 public:
  Issue(MpiCommunicator& comm, const std::string& text)
      : comm_(comm), operation_(std::make_unique<MpiOperation>()) {
    operation_->group = comm.group_;
    operation_->text = "rank " + std::to_string(to_int(comm.rank())) + ": " + text;
    if (comm.group_->aborted->is_set()) throw AbortedError(operation_->text + ": the group was aborted");
  }
  Issue(MpiCommunicator& comm, const Operation& op, const at::Tensor& first, const at::Tensor& second)
      : Issue(comm, describe(op)) {
    check_on_cpu({comm.rank(), comm.size()}, op, first);
    operation_->collective = op.kind != CommKind::send && op.kind != CommKind::recv;
    operation_->first = first;
    operation_->second = second;
  }
  Issue& then(std::unique_ptr<Exchange> exchange) {
    operation_->exchanges.push_back(std::move(exchange));
    return *this;
  }
  Ticket ticket() {
    auto state =
        std::make_unique<HostTicket>(operation_->end, comm_.drops_, operation_->first, operation_->second);
    comm_.engine_->post(std::move(operation_));
    return Ticket(std::move(state));
  }
  void wait() {
    const std::shared_ptr<Completion> end = operation_->end;
    comm_.engine_->post(std::move(operation_));
    end->wait();
  }

 private:
  MpiCommunicator& comm_;
  std::unique_ptr<MpiOperation> operation_;
};

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiEngine> engine, std::shared_ptr<MpiGroup> group,
                                 ScratchAllocator scratch, std::shared_ptr<DropCounter> drops)
    : engine_(std::move(engine)),
      group_(std::move(group)),
      scratch_(std::move(scratch)),
      drops_(std::move(drops)) {}

Rank MpiCommunicator::rank() const { return group_->rank; }
WorldSize MpiCommunicator::size() const { return group_->world; }
std::int64_t MpiCommunicator::dropped_tickets() const { return drops_->count(); }
void MpiCommunicator::abort() noexcept { engine_->abort_group(*group_); }

void MpiCommunicator::barrier() { Issue(*this, "barrier").then(meet()).wait(); }

Ticket MpiCommunicator::issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                              std::optional<Rank> peer) {
  Issue issue(*this, op, from, to);
  const Bytes bytes = bytes_of(op.elements, op.dtype);
  const void* in = from.const_data_ptr();
  void* out = to.mutable_data_ptr();
  switch (op.kind) {
    case CommKind::all_reduce: {
      if (size() == WorldSize{1}) break;
      const SlicedTensor shape = ragged_slices(op, rank(), size());
      char* data = static_cast<char*>(out);
      char* own = data + shape.slices[static_cast<std::size_t>(rank())].begin * size_of(op.dtype);
      issue.then(exchange_and_sum(shape, data, own, scratch_of(*group_)));
      issue.then(exchange_slices(shape, own, data));
      break;
    }
    case CommKind::reduce_scatter:
      issue.then(exchange_and_sum(equal_slices(op, rank(), size()), in, out, scratch_of(*group_)));
      break;
    case CommKind::all_gather:
      issue.then(exchange_slices(equal_slices(op, rank(), size()), in, out));
      break;
    case CommKind::broadcast:
      issue.then(pass_along(bytes, out, rank(), *peer, size()));
      break;
    case CommKind::send:
      issue.then(send_message(bytes, in, *peer));
      break;
    default:
      issue.then(receive_message(bytes, out, *peer));
  }
  return issue.ticket();
}

// MPI_Comm_split blocks the MPI thread. Behind a barrier all members' threads enter it at about the same
// time, and none of them keeps another operation waiting for a rank that comes late.
std::unique_ptr<Communicator> MpiCommunicator::split(int color) {
  Issue(*this, "split").then(meet()).wait();
  auto part = std::make_shared<MpiGroup>();
  part->aborted = std::make_shared<AbortFlag>(group_->aborted);
  engine_->call([&] {
    MPI_Comm comm = MPI_COMM_NULL;
    SC_CHECK(MpiStatus{MPI_Comm_split(group_->collectives, color < 0 ? MPI_UNDEFINED : color,
                                      static_cast<int>(rank()), &comm)});
    if (comm == MPI_COMM_NULL) return;
    form_group(*part, comm);
    SC_CHECK(MpiStatus{MPI_Comm_free(&comm)});
  });
  if (part->collectives == MPI_COMM_NULL) return nullptr;
  allocate_scratch(*part, scratch_);
  return std::unique_ptr<Communicator>(
      new MpiCommunicator(engine_, std::move(part), scratch_, std::make_shared<DropCounter>(drops_)));
}

MpiWorld::MpiWorld(ScratchAllocator scratch)
    : engine_(std::make_shared<MpiEngine>()),
      group_(std::make_shared<MpiGroup>()),
      scratch_(std::move(scratch)),
      drops_(std::make_shared<DropCounter>()),
      exceptions_(std::uncaught_exceptions()) {
  engine_->call([&] { form_group(*group_, MPI_COMM_WORLD); });
}

MpiWorld::~MpiWorld() {
  if (group_->aborted->is_set() || std::uncaught_exceptions() > exceptions_) engine_->leave_badly();
  group_->aborted->set = true;  // no operation can come any more
  engine_->stop();
}

Rank MpiWorld::rank() const { return group_->rank; }
WorldSize MpiWorld::size() const { return group_->world; }
void MpiWorld::abort_job(int exit_code) noexcept { engine_->abort_job(exit_code); }

std::unique_ptr<Communicator> MpiWorld::world() {
  allocate_scratch(*group_, scratch_);
  return std::unique_ptr<Communicator>(new MpiCommunicator(engine_, group_, scratch_, drops_));
}

}  // namespace sc

#include "common/comm/mpi/mpi_communicator.h"

#include <exception>

#include "common/comm/host_ticket.h"
#include "common/comm/mpi/mpi_check.h"
#include "common/comm/mpi/mpi_engine.h"
#include "common/comm/op_check.h"
#include "common/comm/scratch.h"

namespace sc {
namespace {

/// Makes a group's two MPI communicators out of `comm`. MPI thread only. They live until MPI ends: freeing
/// one is a collective, and a rank that drops its group must not have to wait for the others.
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

}  // namespace

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

std::shared_ptr<MpiOperation> MpiCommunicator::operation(const std::string& text, const Operation& op,
                                                         const ExchangeOn& on) const {
  auto made = std::make_shared<MpiOperation>();
  made->text = "rank " + std::to_string(to_int(rank())) + ": " + text;
  if (group_->aborted->is_set()) throw AbortedError(made->text + ": the group was aborted");
  made->group = group_;
  made->exchanges = exchanges_of(op, on);
  return made;
}

void MpiCommunicator::meet(const char* what) {
  const auto made = operation(what, {CommKind::barrier, DType::u8, Elements(0)}, {});
  engine_->post(made);
  made->end->wait();
}

void MpiCommunicator::barrier() { meet("barrier"); }

Ticket MpiCommunicator::issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                              std::optional<Rank> peer) {
  void* scratch = group_->scratch.defined() ? group_->scratch.mutable_data_ptr() : nullptr;
  const auto made =
      operation(describe(op), op, {rank(), from.const_data_ptr(), to.mutable_data_ptr(), peer, scratch});
  check_on_cpu({rank(), size()}, op, from);
  made->collective = op.kind != CommKind::send && op.kind != CommKind::recv;
  made->first = from;
  made->second = to;
  auto ticket = std::make_unique<HostTicket>(made->end, drops_, from, to);
  engine_->post(made);
  return Ticket(std::move(ticket));
}

// MPI_Comm_split blocks the MPI thread. After a barrier the threads of all members enter it at about the same
// time, so none delays its other operations for long.
std::unique_ptr<Communicator> MpiCommunicator::split(int color) {
  meet("split");
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
  group_->aborted->set = true;  // no more operations can come
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

#include "common/comm/local_communicator.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "common/comm/host_ticket.h"
#include "common/comm/op_check.h"
#include "common/comm/rank_sum.h"

namespace sc {
namespace {

/// The tensors that one rank contributes to an operation. They stay alive if the rank drops its ticket.
struct Part {
  at::Tensor in = {}, out = {};
  int color = 0;  // for a split
};

/// The part of a collective that must be the same on all ranks.
struct Request {
  Operation op;
  int root = -1;
  bool split = false;
  [[nodiscard]] bool same_as(const Request& other) const {
    return op.without_names() == other.op.without_names() && root == other.root && split == other.split;
  }
  [[nodiscard]] std::string text() const {
    if (split) return "split";
    return describe(op) + (root >= 0 ? " from rank " + std::to_string(root) : "");
  }
};

struct Collective {
  Request request;
  int first_rank = 0;
  int posted = 0;
  std::vector<Part> parts;
  std::map<int, std::shared_ptr<LocalGroup>> groups;  // the groups that a split makes, by color
  std::shared_ptr<Completion> end = std::make_shared<Completion>();
};

/// A send that waits for its receive, or a receive that waits for its send.
struct Message {
  Operation op;
  Part part;
  std::shared_ptr<Completion> end = std::make_shared<Completion>();
};

}  // namespace

/// The state of a group. The mutex guards all members; tensors are read and written without holding it.
struct LocalGroup {
  explicit LocalGroup(int n) : world{n}, next(static_cast<std::size_t>(n), 0) {}
  const WorldSize world;
  std::mutex mutex;
  bool aborted = false;
  std::vector<std::uint64_t> next;  // the number of each rank's next collective
  std::map<std::uint64_t, std::shared_ptr<Collective>> collectives;  // those that some ranks have not posted
  // The sends and receives that wait for their other side, by (from, to).
  std::map<std::pair<Rank, Rank>, std::deque<std::shared_ptr<Message>>> messages;
  std::vector<std::weak_ptr<LocalGroup>> children;
};

namespace {

void copy(void* to, const void* from, Bytes bytes) {
  if (to != from && bytes.value() > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes.value()));
}

char* at_element(const at::Tensor& t, Elements index) {
  return static_cast<char*>(t.mutable_data_ptr()) +
         index.value() * static_cast<std::int64_t>(t.element_size());
}

void sum(const Collective& c, Elements begin, Elements n, const std::vector<void*>& out) {
  std::vector<const void*> in;
  for (const Part& part : c.parts) in.push_back(at_element(part.in, begin));
  sum_in_rank_order(c.request.op.dtype, in, out, n.value());
}

void form_groups(Collective& c, LocalGroup& parent) {
  std::map<int, int> members;
  for (const Part& part : c.parts)
    if (part.color >= 0) ++members[part.color];
  const std::lock_guard lock(parent.mutex);
  for (const auto& [color, count] : members) {
    auto group = std::make_shared<LocalGroup>(count);
    group->aborted = parent.aborted;
    parent.children.push_back(group);
    c.groups[color] = std::move(group);
  }
}

void carry_out(Collective& c, LocalGroup& group) {
  if (c.request.split) return form_groups(c, group);
  const Operation& op = c.request.op;
  const auto ranks = static_cast<std::int64_t>(c.parts.size());
  const Elements slice = op.elements / ranks;
  std::vector<void*> all;
  switch (op.kind) {
    case CommKind::all_reduce:
      for (const Part& part : c.parts) all.push_back(part.out.mutable_data_ptr());
      return sum(c, Elements(0), op.elements, all);
    case CommKind::reduce_scatter:
      for (std::int64_t r = 0; r < ranks; ++r)
        sum(c, slice * r, slice, {c.parts[static_cast<std::size_t>(r)].out.mutable_data_ptr()});
      return;
    case CommKind::all_gather:
      for (std::int64_t r = 0; r < ranks; ++r)
        for (const Part& part : c.parts)
          copy(at_element(part.out, slice * r), c.parts[static_cast<std::size_t>(r)].in.const_data_ptr(),
               bytes_of(slice, op.dtype));
      return;
    case CommKind::broadcast:
      for (const Part& part : c.parts)
        copy(part.out.mutable_data_ptr(),
             c.parts[static_cast<std::size_t>(c.request.root)].in.const_data_ptr(),
             bytes_of(op.elements, op.dtype));
      return;
    default:
      return;  // a barrier moves nothing
  }
}

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, Rank rank, std::shared_ptr<DropCounter> drops)
      : group_(std::move(group)), rank_(rank), drops_(std::move(drops)) {}

  Rank rank() const override { return rank_; }
  WorldSize size() const override { return group_->world; }
  void barrier() override { post({{CommKind::barrier, DType::u8, Elements(0)}}, {})->end->wait(); }
  void abort() noexcept override { abort_group(*group_); }
  std::unique_ptr<Communicator> split(int color) override;

  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override;
  std::int64_t dropped_tickets() const override { return drops_->count(); }

 private:
  std::shared_ptr<Collective> post(const Request& request, Part mine);
  std::shared_ptr<Completion> match(const Operation& op, Part mine, Rank from, Rank to);
  void require_alive(const std::string& operation) const {
    if (group_->aborted)
      throw AbortedError("rank " + std::to_string(to_int(rank_)) + ": " + operation +
                         ": the group was aborted");
  }
  static void abort_group(LocalGroup& group) noexcept;

  std::shared_ptr<LocalGroup> group_;
  const Rank rank_;
  std::shared_ptr<DropCounter> drops_;
};

Ticket LocalCommunicator::issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
                                std::optional<Rank> peer) {
  check_on_cpu({rank_, group_->world}, op, from);
  std::shared_ptr<Completion> end;
  if (op.kind == CommKind::send) {
    end = match(op, {from, to}, rank_, *peer);
  } else if (op.kind == CommKind::recv) {
    end = match(op, {from, to}, *peer, rank_);
  } else {
    end = post({op, peer ? static_cast<int>(*peer) : -1}, {from, to})->end;
  }
  return Ticket(std::make_unique<HostTicket>(std::move(end), drops_, from, to));
}

// The entry of this rank's next collective.The first rank makes it, the last one carries the collective out.
std::shared_ptr<Collective> LocalCommunicator::post(const Request& request, Part mine) {
  const auto me = static_cast<std::size_t>(rank_);
  std::shared_ptr<Collective> c;
  {
    const std::lock_guard lock(group_->mutex);
    require_alive(request.text());
    const std::uint64_t number = group_->next[me]++;
    std::shared_ptr<Collective>& slot = group_->collectives[number];
    if (!slot) {
      slot = std::make_shared<Collective>();
      slot->request = request;
      slot->first_rank = static_cast<int>(me);
      slot->parts.resize(group_->next.size());
    }
    c = slot;
    if (!c->request.same_as(request)) {
      c->end->fail({OpFailure::Kind::input, "operation " + std::to_string(number) + " of this group",
                    "ranks disagree: rank " + std::to_string(c->first_rank) + " issued " + c->request.text() +
                        ", rank " + std::to_string(me) + " issued " + request.text()});
    }
    c->parts[me] = std::move(mine);
    if (++c->posted < to_int(group_->world)) return c;
    group_->collectives.erase(number);
  }
  if (!c->end->done()) carry_out(*c, *group_);
  for (Part& p : c->parts) p.in = p.out = at::Tensor();  // dropped before any rank returns from wait()
  c->end->finish();
  return c;
}

std::shared_ptr<Completion> LocalCommunicator::match(const Operation& op, Part mine, Rank from, Rank to) {
  auto message = std::make_shared<Message>(Message{op, std::move(mine)});
  const bool sending = op.kind == CommKind::send;
  std::shared_ptr<Message> other;
  {
    const std::lock_guard lock(group_->mutex);
    require_alive(describe(op));
    auto& unmatched = group_->messages[{from, to}];
    if (unmatched.empty() || unmatched.front()->op.kind == op.kind) {
      unmatched.push_back(message);
      return message->end;
    }
    other = unmatched.front();
    unmatched.pop_front();
  }
  const Message& sent = sending ? *message : *other;
  const Message& received = sending ? *other : *message;
  if (sent.op.elements != received.op.elements || sent.op.dtype != received.op.dtype) {
    const OpFailure failure{
        OpFailure::Kind::input,
        "message from rank " + std::to_string(to_int(from)) + " to rank " + std::to_string(to_int(to)),
        "ranks disagree: rank " + std::to_string(to_int(from)) + " issued " + describe(sent.op) + ", rank " +
            std::to_string(to_int(to)) + " issued " + describe(received.op)};
    other->end->fail(failure);
    message->end->fail(failure);
  } else {
    copy(received.part.out.mutable_data_ptr(), sent.part.in.const_data_ptr(),
         bytes_of(op.elements, op.dtype));
  }
  for (Message* m : {message.get(), other.get()}) {
    m->part = Part();
    m->end->finish();
  }
  return message->end;
}

std::unique_ptr<Communicator> LocalCommunicator::split(int color) {
  const std::shared_ptr<Collective> c =
      post({{CommKind::barrier, DType::u8, Elements(0)}, -1, true}, {{}, {}, color});
  c->end->wait();
  if (color < 0) return nullptr;
  const auto before = std::count_if(c->parts.begin(), c->parts.begin() + to_int(rank_),
                                    [&](const Part& part) { return part.color == color; });
  return std::make_unique<LocalCommunicator>(c->groups.at(color), Rank{static_cast<int>(before)},
                                             std::make_shared<DropCounter>(drops_));
}

void LocalCommunicator::abort_group(LocalGroup& group) noexcept {
  std::vector<std::pair<std::shared_ptr<Completion>, std::string>> pending;
  std::vector<std::shared_ptr<LocalGroup>> children;
  {
    const std::lock_guard lock(group.mutex);
    group.aborted = true;
    for (const auto& [number, c] : group.collectives) pending.emplace_back(c->end, c->request.text());
    for (const auto& [pair, queue] : group.messages)
      for (const auto& message : queue) pending.emplace_back(message->end, describe(message->op));
    group.collectives.clear();
    group.messages.clear();
    for (const auto& child : group.children)
      if (auto alive = child.lock()) children.push_back(alive);
  }
  for (const auto& [end, text] : pending)
    end->fail({OpFailure::Kind::aborted, text, "the group was aborted"});
  for (const auto& child : children) abort_group(*child);
}

}  // namespace

LocalWorld::LocalWorld(int n) {
  if (n < 1)
    throw InputError(ExitCode::usage, "LocalWorld",
                     "a world needs at least one rank, not " + std::to_string(n), "");
  group_ = std::make_shared<LocalGroup>(n);
}

std::unique_ptr<Communicator> LocalWorld::communicator(Rank rank) {
  if (to_int(rank) < 0 || to_int(rank) >= to_int(group_->world)) {
    throw InputError(ExitCode::usage, "LocalWorld",
                     "rank " + std::to_string(to_int(rank)) + " is not in a world of " +
                         std::to_string(to_int(group_->world)),
                     "");
  }
  return std::make_unique<LocalCommunicator>(group_, rank, std::make_shared<DropCounter>());
}

}  // namespace sc

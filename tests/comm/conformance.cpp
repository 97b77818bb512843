#include "tests/comm/conformance.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/comm/gather_text.h"
#include "common/comm/local_communicator.h"
#include "tests/comm/rank_values.h"
#include "tests/watch/refusal.h"

namespace sc::test {
namespace {

std::int64_t rank_of(Communicator& comm) { return to_int(comm.rank()); }
std::int64_t size_of(Communicator& comm) { return to_int(comm.size()); }

void all_reduce_sums_in_rank_order(Communicator& comm) {
  for_all_types([&](auto zero) {
    using T = decltype(zero);
    for (const std::int64_t n : counts<T>()) {
      at::Tensor t = filled<T>(rank_of(comm), n, 1);
      comm.all_reduce(t).wait();
      expect_values<T>(t, 0, n, sum_of_all<T>(size_of(comm), 1), "all_reduce");
    }
  });
}

void reduce_scatter_sums_in_rank_order(Communicator& comm) {
  for_all_types([&](auto zero) {
    using T = decltype(zero);
    for (const std::int64_t n : counts<T>()) {
      const at::Tensor full = filled<T>(rank_of(comm), n * size_of(comm), 2);
      at::Tensor shard = at::empty({n}, full.options());
      comm.reduce_scatter(full, shard).wait();
      expect_values<T>(shard, 0, n, sum_of_all<T>(size_of(comm), 2, rank_of(comm) * n), "shard");
      expect_values<T>(full, 0, n * size_of(comm), numbers_of<T>(rank_of(comm), 2), "full");
    }
  });
}

void reduce_scatter_in_place(Communicator& comm) {
  for (const std::int64_t n : kCounts) {
    at::Tensor full = filled<float>(rank_of(comm), n * size_of(comm), 3);
    const std::int64_t begin = rank_of(comm) * n, end = begin + n;
    at::Tensor shard = full.narrow(0, begin, n);
    comm.reduce_scatter(full, shard).wait();
    const auto want = [&](std::int64_t i) {
      return i >= begin && i < end ? expected_sum<float>(size_of(comm), i, 3)
                                   : number<float>(rank_of(comm), i, 3);
    };
    expect_values<float>(full, 0, n * size_of(comm), want, "only the shard changes");
  }
}

void all_gather_brings_every_slice(Communicator& comm) {
  for_all_types([&](auto zero) {
    using T = decltype(zero);
    for (const std::int64_t n : counts<T>()) {
      const at::Tensor shard = filled<T>(rank_of(comm), n, 4);
      at::Tensor full = at::empty({n * size_of(comm)}, shard.options());
      comm.all_gather(shard, full).wait();
      for (std::int64_t r = 0; r < size_of(comm); ++r) {
        expect_values<T>(full, r * n, n, numbers_of<T>(r, 4), "slice " + std::to_string(r));
      }
    }
  });
}

void all_gather_in_place(Communicator& comm) {
  for (const std::int64_t n : kCounts) {
    at::Tensor full = uninitialised(n * size_of(comm), at::kFloat);
    at::Tensor shard = full.narrow(0, rank_of(comm) * n, n);
    shard.copy_(filled<float>(rank_of(comm), n, 5));
    comm.all_gather(shard, full).wait();
    for (std::int64_t r = 0; r < size_of(comm); ++r) {
      expect_values<float>(full, r * n, n, numbers_of<float>(r, 5), "slice " + std::to_string(r));
    }
  }
}

void broadcast_from_every_root(Communicator& comm) {
  for (std::int64_t root = 0; root < size_of(comm); ++root) {
    for (const std::int64_t n : kCounts) {
      at::Tensor t = filled<float>(rank_of(comm), n, 6);
      comm.broadcast(t, Rank{static_cast<int>(root)}).wait();
      expect_values<float>(t, 0, n, numbers_of<float>(root, 6), "broadcast");
    }
  }
}

// Every rank sends three messages of different sizes to every other; receives are posted first and in the
// order of the sends.
void messages_match_in_issue_order(Communicator& comm) {
  const std::vector<std::int64_t> counts = {100003, 0, 5};
  std::vector<Ticket> tickets;
  std::vector<std::vector<at::Tensor>> received(static_cast<std::size_t>(size_of(comm)));
  for (std::int64_t r = 0; r < size_of(comm); ++r) {
    if (r == rank_of(comm)) continue;
    for (const std::int64_t n : counts) {
      at::Tensor& t = received[static_cast<std::size_t>(r)].emplace_back(uninitialised(n, at::kFloat));
      tickets.push_back(comm.recv(t, Rank{static_cast<int>(r)}));
    }
  }
  for (std::int64_t r = 0; r < size_of(comm); ++r) {
    if (r == rank_of(comm)) continue;
    for (std::size_t k = 0; k < counts.size(); ++k) {
      const at::Tensor t = filled<float>(rank_of(comm), counts[k], 10 + static_cast<std::int64_t>(k));
      tickets.push_back(comm.send(t, Rank{static_cast<int>(r)}));
    }
  }
  for (Ticket& ticket : tickets) ticket.wait();
  for (std::int64_t r = 0; r < size_of(comm); ++r) {
    for (std::size_t k = 0; k < received[static_cast<std::size_t>(r)].size(); ++k) {
      const auto want = numbers_of<float>(r, 10 + static_cast<std::int64_t>(k));
      expect_values<float>(received[static_cast<std::size_t>(r)][k], 0, counts[k], want,
                           "message from " + std::to_string(r));
    }
  }
}

// A receive stays pending while collectives and barriers go through, and is matched at last.
void pending_receive_blocks_nothing(Communicator& comm) {
  const std::int64_t next = (rank_of(comm) + 1) % size_of(comm),
                     before = (rank_of(comm) + size_of(comm) - 1) % size_of(comm);
  at::Tensor late = uninitialised(7, at::kFloat);
  Ticket receive;
  if (size_of(comm) > 1) receive = comm.recv(late, Rank{static_cast<int>(before)});
  for (int k = 0; k < 5; ++k) {
    at::Tensor t = filled<float>(rank_of(comm), 70000, 20 + k);
    comm.all_reduce(t).wait();
    expect_values<float>(t, 0, 70000, sum_of_all<float>(size_of(comm), 20 + k), "all_reduce");
  }
  comm.barrier();
  if (size_of(comm) == 1) return;
  EXPECT_FALSE(receive.ready());
  comm.barrier();
  comm.send(filled<float>(rank_of(comm), 7, 30), Rank{static_cast<int>(next)}).wait();
  receive.wait();
  expect_values<float>(late, 0, 7, numbers_of<float>(before, 30), "late message");
}

// Forty operations of all kinds are in flight, and waited for from the last to the first.
void many_operations_in_flight(Communicator& comm) {
  constexpr int kRounds = 10;
  const std::int64_t n = 3001, world = size_of(comm), rank = rank_of(comm);
  std::vector<at::Tensor> sums, fulls, shards, gathered, spread;
  std::vector<Ticket> tickets;
  for (int k = 0; k < kRounds; ++k) {
    sums.push_back(filled<float>(rank, n, 40 + k));
    fulls.push_back(filled<float>(rank, n * world, 60 + k));
    shards.push_back(uninitialised(n, at::kFloat));
    gathered.push_back(uninitialised(n * world, at::kFloat));
    spread.push_back(filled<float>(rank, n, 80 + k));
    tickets.push_back(comm.all_reduce(sums.back()));
    tickets.push_back(comm.reduce_scatter(fulls.back(), shards.back()));
    tickets.push_back(comm.all_gather(filled<float>(rank, n, 100 + k), gathered.back()));
    tickets.push_back(comm.broadcast(spread.back(), Rank{static_cast<int>(k % world)}));
  }
  for (auto ticket = tickets.rbegin(); ticket != tickets.rend(); ++ticket) {
    ticket->wait();
    EXPECT_TRUE(ticket->ready());
    ticket->wait();  // idempotent
  }
  for (int k = 0; k < kRounds; ++k) {
    const auto s = static_cast<std::size_t>(k);
    expect_values<float>(sums[s], 0, n, sum_of_all<float>(world, 40 + k), "all_reduce");
    expect_values<float>(shards[s], 0, n, sum_of_all<float>(world, 60 + k, rank * n), "reduce_scatter");
    expect_values<float>(gathered[s], 0, n, numbers_of<float>(0, 100 + k), "all_gather");
    expect_values<float>(spread[s], 0, n, numbers_of<float>(k % world, 80 + k), "broadcast");
  }
}

// These tensors have more pieces than any transport has in flight at once.
void long_tensors(Communicator& comm) {
  const std::int64_t n = 700'001;
  at::Tensor t = filled<float>(rank_of(comm), n, 7);
  comm.all_reduce(t).wait();
  expect_values<float>(t, 0, n, sum_of_all<float>(size_of(comm), 7), "all_reduce");
  const Rank root{static_cast<int>(size_of(comm) - 1)};
  at::Tensor b = filled<float>(rank_of(comm), n, 8);
  comm.broadcast(b, root).wait();
  expect_values<float>(b, 0, n, numbers_of<float>(to_int(root), 8), "broadcast");
}

// Splits into two groups, the even and the odd ranks; rank 0 alone stays out of the second split.
void split_makes_groups(Communicator& comm) {
  const std::int64_t rank = rank_of(comm), world = size_of(comm);
  const auto part = comm.split(static_cast<int>(rank % 2));
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(to_int(part->rank()), rank / 2);
  EXPECT_EQ(to_int(part->size()), (world - rank % 2 + 1) / 2);
  at::Tensor t = filled<std::int64_t>(rank, 100, 9), all = filled<std::int64_t>(rank, 100, 9);
  Ticket outer = comm.all_reduce(all);
  part->all_reduce(t).wait();
  outer.wait();
  const auto want = [&](std::int64_t i) {
    std::uint64_t sum = 0;
    for (std::int64_t r = rank % 2; r < world; r += 2)
      sum += static_cast<std::uint64_t>(number<std::int64_t>(r, i, 9));
    return static_cast<std::int64_t>(sum);
  };
  expect_values<std::int64_t>(t, 0, 100, want, "sum over the part");
  expect_values<std::int64_t>(all, 0, 100, sum_of_all<std::int64_t>(world, 9), "over all");
  part->barrier();
  const auto later = comm.split(rank == 0 ? -1 : 5);
  EXPECT_EQ(later == nullptr, rank == 0);
  if (later) {
    EXPECT_EQ(to_int(later->size()), world - 1);
    later->barrier();
  }
}

template <class Op>
void expect_refused(const Op& op, const std::string& reason) {
  const InputError error = refusal_of(op);
  EXPECT_EQ(error.code(), ExitCode::usage) << reason;
  EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
}

// A wrong argument is refused at once, and disturbs nothing.
void wrong_arguments_are_refused(Communicator& comm) {
  const int world = static_cast<int>(size_of(comm)), rank = static_cast<int>(rank_of(comm));
  at::Tensor full = filled<float>(rank, 6 * world, 1), shard = filled<float>(rank, 5, 1),
             t = filled<float>(rank, 4, 1);
  expect_refused([&] { comm.reduce_scatter(full, shard).wait(); }, "ranks x 5 of shard");
  expect_refused([&] { comm.all_gather(shard, full).wait(); }, "ranks x 5 of shard");
  at::Tensor doubles = filled<double>(rank, 6, 1);
  expect_refused([&] { comm.all_gather(doubles, full).wait(); }, "full is f32 but shard is f64");
  at::Tensor strided = full.as_strided({3}, {2});
  expect_refused([&] { comm.all_reduce(strided).wait(); }, "the tensor is not contiguous");
  at::Tensor undefined;
  expect_refused([&] { comm.all_reduce(undefined).wait(); }, "the tensor is not defined");
  at::Tensor flags = at::empty({4}, at::kBool);
  expect_refused([&] { comm.all_reduce(flags).wait(); }, "no operation carries Bool");
  expect_refused([&] { comm.broadcast(t, Rank{world}).wait(); }, "is not in a group of");
  expect_refused([&] { comm.send(t, Rank{-1}).wait(); }, "is not in a group of");
  expect_refused([&] { comm.recv(t, Rank{rank}).wait(); }, "a rank cannot send to itself");
  at::Tensor crooked = full.narrow(0, 1, 5);
  at::Tensor five = full.narrow(0, 0, 5 * world);
  if (world > 1) expect_refused([&] { comm.all_gather(crooked, five).wait(); }, "shard overlaps full");
  // Neighbouring tensors in one arena do not overlap, so they are allowed.
  at::Tensor arena = filled<float>(rank, 5 * (world + 2), 1), middle = arena.narrow(0, 5, 5 * world);
  comm.all_gather(arena.narrow(0, 0, 5), middle).wait();
  comm.all_gather(arena.narrow(0, 5 * (world + 1), 5), middle).wait();
  comm.all_reduce(t).wait();
  expect_values<float>(t, 0, 4, sum_of_all<float>(world, 1), "afterwards");
}

void dropped_tickets_are_counted(Communicator& comm) {
  const std::int64_t before = comm.dropped_tickets();
  at::Tensor t = filled<float>(rank_of(comm), 1000, 1), u = filled<float>(rank_of(comm), 1000, 2),
             v = filled<float>(rank_of(comm), 10, 3);
  comm.all_reduce(t).wait();
  EXPECT_EQ(comm.dropped_tickets(), before);
  { const Ticket dropped = comm.all_reduce(u); }
  EXPECT_EQ(comm.dropped_tickets(), before + 1);
  Ticket kept = comm.all_reduce(t);
  kept = comm.all_reduce(v);  // the first one is lost
  kept.wait();
  EXPECT_EQ(comm.dropped_tickets(), before + 2);
  comm.barrier();
  const auto part = comm.split(0);
  at::Tensor w = filled<float>(rank_of(comm), 10, 3);
  { const Ticket dropped = part->all_reduce(w); }
  EXPECT_EQ(part->dropped_tickets(), 1);
  EXPECT_EQ(comm.dropped_tickets(), before + 3);
  part->barrier();
}

// The operation keeps the storage alive while it runs, and no longer than the wait.
void storage_lives_until_the_wait(Communicator& comm) {
  for (int k = 0; k < 20; ++k) {
    at::Tensor sum = filled<float>(rank_of(comm), 50001, k);
    const at::Tensor view = sum;
    Ticket ticket = comm.all_reduce(sum);
    sum = at::Tensor();
    ticket.wait();
    EXPECT_EQ(view.use_count(), 1u) << "somebody still holds the tensor";
    expect_values<float>(view, 0, 50001, sum_of_all<float>(size_of(comm), k), "all_reduce");
  }
  at::Tensor gathered = uninitialised(1000 * size_of(comm), at::kFloat);
  Ticket ticket = comm.all_gather(filled<float>(rank_of(comm), 1000, 50),
                                  gathered);  // its input lives in the ticket alone
  ticket.wait();
  expect_values<float>(gathered, 0, 1000, numbers_of<float>(0, 50), "all_gather");
}

void texts_travel(Communicator& comm) {
  const std::int64_t rank = rank_of(comm);
  const auto text_of = [](std::int64_t r) {
    return r % 2 == 1 ? std::string() : std::string(static_cast<std::size_t>(r * 50000 + 3), '!') + '\0';
  };
  const std::vector<std::string> texts = gather_strings(comm, text_of(rank));
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(rank == 0 ? size_of(comm) : 0));
  for (std::size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], text_of(static_cast<std::int64_t>(r)));
  EXPECT_EQ(broadcast_string(comm, rank == 0 ? "runs/01/2026" : "something else"), "runs/01/2026");
  EXPECT_EQ(broadcast_string(comm, rank == 0 ? "" : "something else"), "");
}

template <class Op>
void expect_aborted(const Op& op) {
  try {
    op();
    ADD_FAILURE() << "not aborted";
  } catch (const AbortedError& error) {
    EXPECT_NE(std::string(error.what()).find("the group was aborted"), std::string::npos) << error.what();
  }
}

// Rank 0 waits for others that never come, in a group and in a part of it; nobody else is disturbed.
void abort_fails_pending_and_later_operations(Communicator& comm) {
  const auto group = comm.split(0);
  const auto part = group->split(0);
  at::Tensor t = filled<float>(rank_of(comm), 10, 1), u = t.clone(), v = t.clone();
  std::vector<Ticket> pending;
  if (size_of(comm) > 1 && rank_of(comm) == 0) {
    pending.push_back(group->all_reduce(t));
    pending.push_back(part->all_reduce(u));
    pending.push_back(part->recv(v, Rank{1}));
  }
  comm.barrier();
  group->abort();
  for (Ticket& ticket : pending) expect_aborted([&] { ticket.wait(); });
  expect_aborted([&] { group->all_reduce(t).wait(); });
  expect_aborted([&] { part->barrier(); });
  at::Tensor after = filled<float>(rank_of(comm), 10, 2);
  comm.all_reduce(after).wait();
  expect_values<float>(after, 0, 10, sum_of_all<float>(size_of(comm), 2), "of the world");
}

void barrier_waits_for_all(Communicator& comm) {
  for (int k = 0; k < 20; ++k) comm.barrier();
}

}  // namespace

const std::vector<Case>& conformance_cases() {
  static const std::vector<Case> cases = {
      {"AllReduceSumsInRankOrder", all_reduce_sums_in_rank_order},
      {"ReduceScatterSumsInRankOrder", reduce_scatter_sums_in_rank_order},
      {"ReduceScatterInPlace", reduce_scatter_in_place},
      {"AllGatherBringsEverySlice", all_gather_brings_every_slice},
      {"AllGatherInPlace", all_gather_in_place},
      {"BroadcastFromEveryRoot", broadcast_from_every_root},
      {"MessagesMatchInIssueOrder", messages_match_in_issue_order},
      {"PendingReceiveBlocksNothing", pending_receive_blocks_nothing},
      {"ManyOperationsInFlight", many_operations_in_flight},
      {"LongTensors", long_tensors},
      {"SplitMakesGroups", split_makes_groups},
      {"WrongArgumentsAreRefused", wrong_arguments_are_refused},
      {"DroppedTicketsAreCounted", dropped_tickets_are_counted},
      {"StorageLivesUntilTheWait", storage_lives_until_the_wait},
      {"TextsTravel", texts_travel},
      {"AbortFailsPendingAndLaterOperations", abort_fails_pending_and_later_operations},
      {"BarrierWaitsForAll", barrier_waits_for_all},
  };
  return cases;
}

void run_local(int world, const std::function<void(Communicator&)>& body, const Wrap& wrap) {
  LocalWorld local(world);
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      std::unique_ptr<Communicator> comm = local.communicator(Rank{r});
      if (wrap) comm = wrap(std::move(comm));
      try {
        body(*comm);
      } catch (const AbortedError&) {  // another rank says why
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << r << ": " << error.what();
        comm->abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sc::test

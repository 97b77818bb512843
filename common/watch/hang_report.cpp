// Works out which rank is missing and words the report: describe_hang of watchdog.h.
#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "common/base/control_group.h"
#include "common/base/text.h"
#include "common/watch/process_alive.h"
#include "common/watch/watchdog.h"

namespace sc {
namespace {

enum class State { gone, stopped, left, busy, waiting, elsewhere };

struct Peer {
  Rank rank;
  RankProgress progress;
  State state;
  std::int64_t silent_ms;
};

std::string milliseconds_text(std::int64_t ms) {
  if (ms >= 10'000) return human_seconds(static_cast<double>(ms) / 1000);
  return std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 100) + " s";
}

Peer look_at(const ProgressBoard& board, Rank rank, std::chrono::milliseconds stale) {
  Peer peer{rank, board.read(rank), State::busy, 0};
  const RankProgress& p = peer.progress;
  peer.silent_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(RankProgress::Clock::now() - p.heartbeat).count();
  peer.state = p.pid == 0                       ? State::elsewhere
               : p.left                         ? State::left
               : !process_alive(p.pid)          ? State::gone
               : peer.silent_ms > stale.count() ? State::stopped
               : p.waiting                      ? State::waiting
                                                : State::busy;
  return peer;
}

std::vector<Peer> of_state(const std::vector<Peer>& peers, State state) {
  std::vector<Peer> found;
  std::copy_if(peers.begin(), peers.end(), std::back_inserter(found),
               [&](const Peer& p) { return p.state == state; });
  return found;
}

// The ranks that have issued the fewest operations, if all ranks wait for collectives of the whole world.
std::vector<Peer> behind_all(const std::vector<Peer>& peers, std::int64_t my_operations) {
  std::vector<Peer> behind = of_state(peers, State::waiting);
  std::int64_t fewest = my_operations;
  for (const Peer& p : behind) fewest = std::min(fewest, p.progress.operations);
  std::erase_if(behind,
                [&](const Peer& p) { return p.progress.operations > fewest || fewest == my_operations; });
  return behind.empty() ? of_state(peers, State::elsewhere) : behind;
}

// The rank that a waiting rank depends on: the other end of its message, or the first rank of its group that
// is not in the same collective. Empty: none that the board knows.
std::optional<Rank> waits_for_whom(const std::map<Rank, Peer>& all, Rank rank) {
  const Meeting& with = all.at(rank).progress.meeting;
  if (with.peer) return with.peer;
  for (const auto& [other, peer] : all) {
    if (other == rank || !with.group.contains(other)) continue;
    const bool there = peer.state == State::waiting && peer.progress.meeting == with;
    if (!there) return other;
  }
  return {};
}

// The end of the chain of waits that begins with `rank`: a rank that waits for no other rank, or a ring of
// ranks in which each waits for the next.
std::vector<Peer> end_of_chain(const std::map<Rank, Peer>& all, Rank rank) {
  std::vector<Rank> path = {rank};
  for (;;) {
    const std::optional<Rank> next = waits_for_whom(all, path.back());
    if (!next || !all.contains(*next)) {
      if (path.size() == 1) return {};
      return {all.at(path.back())};  // it waits for something of its own
    }
    if (all.at(*next).state != State::waiting) return {all.at(*next)};
    const auto seen = std::ranges::find(path, *next);
    if (seen == path.end()) {
      path.push_back(*next);
      continue;
    }
    std::vector<Peer> ring;
    std::transform(seen, path.end(), std::back_inserter(ring), [&](Rank member) { return all.at(member); });
    return ring;
  }
}

// Whether ranks use messages or smaller groups. Then they have different operations by nature, and the chain
// of waits tells which rank is missing; otherwise the number of operations does.
bool waits_in_parts(const std::map<Rank, Peer>& all) {
  return std::ranges::any_of(all, [&](const auto& entry) {
    const Meeting& with = entry.second.progress.meeting;
    const int ranks = with.group.count;
    const bool whole_world = !with.peer && (ranks == 0 || ranks == static_cast<int>(all.size()));
    return entry.second.state == State::waiting && !whole_world;
  });
}

std::string state_text(const Peer& peer) {
  const std::string process = "process " + std::to_string(peer.progress.pid);
  switch (peer.state) {
    case State::gone:
      return process + " is gone";
    case State::stopped:
      return process + " has stopped (no heartbeat for " + milliseconds_text(peer.silent_ms) + ")";
    case State::left:
      return process + " has ended";
    case State::busy:
      return process + " is alive, but does not come to the next operation";
    case State::waiting:
      return process + " is alive and waits for another operation";
    case State::elsewhere:
      break;
  }
  return "on another host, its state is not known here";
}

std::string position_text(const RankProgress& p) {
  return std::string(name_of(p.phase)) + " step " + std::to_string(p.step);
}

std::string last_text(const RankProgress& p) {
  if (!p.last) return "no operation yet, " + position_text(p);
  return "last operation " + std::to_string(p.operations) + " (" + describe(*p.last, p.last_unit) + "), " +
         position_text(p);
}

bool writes(const RankProgress& p) { return p.doing.starts_with("writes "); }

// What the rank is doing, as ", stage 1, action 7: SA1," if the strategy says so, or the file that it writes.
std::string doing_text(const RankProgress& p) {
  return p.doing.empty() || (p.phase != Phase::train && !writes(p)) ? "" : ", " + p.doing + ",";
}

std::string names(const ProgressBoard& board, const std::vector<Peer>& peers) {
  std::string text = peers.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < peers.size(); ++i) text += (i == 0 ? "" : ", ") + board.name_of(peers[i].rank);
  return text;
}

std::string operation_text(const OutstandingOp& op, int last_unit) {
  std::string text = "its operation " + std::to_string(op.number) + " (" + describe(op.op, last_unit);
  if (op.with.peer)
    text +=
        (op.op.kind == CommKind::send ? " to rank " : " from rank ") + std::to_string(to_int(*op.with.peer));
  return text + ", " + std::string(name_of(op.phase)) + " step " + std::to_string(op.step) + ")";
}

std::string fix_of_disk(std::chrono::milliseconds limit) {
  return "\n  fix: see whether the disk still answers (dmesg); one that is only slow needs a longer "
         "--watchdog (now " +
         milliseconds_text(limit.count()) + ")";
}

std::string fix_text(const std::vector<Peer>& lost, std::chrono::milliseconds limit) {
  if (!of_state(lost, State::gone).empty()) {
    rlimit cpu{};
    const bool limited = ::getrlimit(RLIMIT_CPU, &cpu) == 0 && cpu.rlim_cur != RLIM_INFINITY;
    const std::int64_t kills = memory_kills();
    return "\n  fix: look above for its own last words; without any, the system may have killed it (" +
           (kills > 0 ? "out of memory: its control group has counted " + std::to_string(kills) + " such ends"
            : limited ? "processor time used up, ulimit -t?"
                      : "out of memory?") +
           ")";
  }
  if (std::ranges::any_of(lost, [](const Peer& p) { return writes(p.progress); })) return fix_of_disk(limit);
  return "\n  fix: see what it does there; a rank that is only slow needs a longer --watchdog (now " +
         milliseconds_text(limit.count()) + ")";
}

std::string all_wait_text(const ProgressBoard& board, const std::vector<Peer>& peers,
                          const std::string& seen) {
  std::string text = "every rank waits, so the ranks did not issue the same operations: " + seen;
  for (const Peer& p : peers) text += "\n  rank " + board.name_of(p.rank) + ": " + last_text(p.progress);
  return text;
}

std::string disk_text(const std::string& me, const OutstandingOp& op, const RankProgress& mine,
                      std::chrono::milliseconds limit) {
  return me + " is stuck: " + operation_text(op, mine.last_unit) + " has not ended for more than " +
         milliseconds_text(limit.count()) + fix_of_disk(limit);
}

// Whether all ranks wait in the same step.
bool all_wait_in(const std::string& position, const std::vector<Peer>& peers) {
  return std::ranges::all_of(peers, [&](const Peer& p) {
    return p.state == State::waiting && position_text(p.progress) == position;
  });
}

// The report about ranks that wait in a graph: it is one launch for the host, so no operation can be named.
std::string graph_text(const Peer& mine, const ProgressBoard& board, std::chrono::milliseconds limit) {
  return "every rank waits in the graph of a step: rank " + board.name_of(mine.rank) + "'s of " +
         position_text(mine.progress) + " has not ended for more than " + milliseconds_text(limit.count()) +
         "\n  fix: --graph off launches the same operations one by one, and its message names the one that "
         "waits; a rank that is only slow needs a longer --watchdog (now " +
         milliseconds_text(limit.count()) + ")";
}

std::string ring_text(const ProgressBoard& board, const std::vector<Peer>& ring, const std::string& seen) {
  std::string text = "every rank of a ring waits for the next one, so none of them ever goes on: " + seen;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const Peer &p = ring[i], &next = ring[(i + 1) % ring.size()];
    text += "\n  rank " + board.name_of(p.rank) + doing_text(p.progress) + " waits for rank " +
            std::to_string(to_int(next.rank)) + ": " + last_text(p.progress);
  }
  return text;
}

std::string lost_text(const ProgressBoard& board, const std::vector<Peer>& lost, const std::string& seen) {
  std::string text = "lost " + names(board, lost) + ": " + seen;
  for (const Peer& p : lost) {
    text += "\n  rank " + std::to_string(to_int(p.rank)) + ": " + state_text(p);
    if (p.state == State::elsewhere) continue;
    text += "; " + last_text(p.progress);
    if (const std::string at = doing_text(p.progress); !at.empty()) text += at.substr(0, at.size() - 1);
  }
  return text;
}

}  // namespace

std::string describe_hang(const ProgressBoard& board, Rank rank,
                          const std::optional<OutstandingOp>& waits_for, std::chrono::milliseconds limit,
                          std::chrono::milliseconds stale) {
  const std::string over = " for more than " + milliseconds_text(limit.count());
  const RankProgress mine = board.read(rank);
  std::map<Rank, Peer> all = {{rank, {rank, mine, waits_for ? State::waiting : State::busy, 0}}};
  if (waits_for && waits_for->with != Meeting{}) all.at(rank).progress.meeting = waits_for->with;
  std::vector<Peer> peers;
  for (int r = 0; r < to_int(board.world()); ++r) {
    if (Rank{r} == rank) continue;
    peers.push_back(look_at(board, Rank{r}, stale));
    all.emplace(Rank{r}, peers.back());
  }
  std::vector<Peer> lost, ring;
  for (const State state : {State::gone, State::stopped, State::left, State::busy})
    if (lost.empty()) lost = of_state(peers, state);
  if (!waits_for) {
    lost = of_state(lost, State::gone);
  } else if (lost.empty() && waits_in_parts(all)) {
    lost = end_of_chain(all, rank);
    if (lost.size() > 1) ring.swap(lost);
  } else if (lost.empty()) {
    lost = behind_all(peers, mine.operations);
  }
  if (waits_for && waits_for->replayed && all_wait_in(position_text(mine), peers))
    return graph_text(all.at(rank), board, limit);
  const std::string me = "rank " + board.name_of(rank);
  if (!waits_for && lost.empty()) {
    return me + doing_text(mine) + " is stuck: nothing has moved" + over + " in " + position_text(mine) +
           "\n  " + last_text(mine) + fix_text({all.at(rank)}, limit);
  }
  if (waits_for && way_of(waits_for->op.kind) == Way::disk && of_state(lost, State::gone).empty())
    return disk_text(me, *waits_for, mine, limit);
  const std::string seen =
      waits_for ? me + " waits for " + operation_text(*waits_for, mine.last_unit) + over : "noticed by " + me;
  if (!ring.empty()) return ring_text(board, ring, seen) + fix_text(ring, limit);
  return (lost.empty() ? all_wait_text(board, peers, seen) : lost_text(board, lost, seen)) +
         fix_text(lost, limit);
}

}  // namespace sc

#include "common/watch/progress_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "common/base/check.h"

namespace sc {

// A file of zeros is a valid board that no rank has joined, so the process that maps it first need not write.
struct alignas(64) ProgressBoard::Header {
  std::atomic<std::int64_t> world;
  std::atomic<std::int32_t> claimed;
  std::atomic<std::int32_t> reported;
  std::atomic<std::int64_t> stops_after_plus_one;
  std::atomic<std::int32_t> units;
};

struct alignas(64) ProgressBoard::Slot {
  std::atomic<std::int64_t> pid, heartbeat_ns, moves, step, operations, last_elements, collective;
  std::atomic<std::int32_t> waiting, last_ranks, last_stride, last_unit, peer_plus_one, group_first,
      group_count, group_stride;
  std::atomic<std::uint8_t> left, phase, last_kind, last_dtype, last_purpose;
  std::atomic<std::uint64_t> doing[20];  // zero-terminated text
};

namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free, "the board is shared between processes");

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(RankProgress::Clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void fail(const std::string& path, const char* call) {
  throw DeviceError("progress board " + path + ": " + call + ": " + std::strerror(errno));
}

// Maps the file, or for an empty path private memory; zeros at first.
std::byte* map_memory(const std::string& path, std::size_t size) {
  int file = -1;
  if (!path.empty()) {
    file = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) fail(path, "open");
    if (::ftruncate(file, static_cast<off_t>(size)) != 0) {
      ::close(file);
      fail(path, "ftruncate");
    }
  }
  const int flags = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, file, 0);
  if (file >= 0) ::close(file);
  if (mapped == MAP_FAILED) fail(path, "mmap");
  return static_cast<std::byte*>(mapped);
}

}  // namespace

ProgressBoard::ProgressBoard(const std::string& path, WorldSize world)
    : world_(world),
      path_(path),
      size_(sizeof(Header) + sizeof(Slot) * static_cast<std::size_t>(world)),
      base_(map_memory(path, size_)) {
  std::int64_t other = 0;
  if (!header().world.compare_exchange_strong(other, to_int(world)) && other != to_int(world)) {
    ::munmap(base_, size_);
    throw DeviceError("progress board " + path + ": made for " + std::to_string(other) + " ranks, not " +
                      std::to_string(to_int(world)));
  }
}

ProgressBoard::~ProgressBoard() { ::munmap(base_, size_); }

ProgressBoard::Header& ProgressBoard::header() const { return *reinterpret_cast<Header*>(base_); }

ProgressBoard::Slot& ProgressBoard::slot(Rank rank) const {
  return reinterpret_cast<Slot*>(base_ + sizeof(Header))[static_cast<std::size_t>(rank)];
}

void ProgressBoard::join(Rank rank) {
  heartbeat(rank);
  slot(rank).pid = ::getpid();
}

void ProgressBoard::leave(Rank rank) { slot(rank).left = 1; }

void ProgressBoard::heartbeat(Rank rank, std::int64_t moves) {
  slot(rank).moves = moves;
  slot(rank).heartbeat_ns = now_ns();
}

void ProgressBoard::set_position(Rank rank, Phase phase, std::int64_t step) {
  slot(rank).phase = static_cast<std::uint8_t>(phase);
  slot(rank).step = step;
}

void ProgressBoard::set_issued(Rank rank, std::int64_t operations, const Operation& last) {
  Slot& s = slot(rank);
  s.last_kind = static_cast<std::uint8_t>(last.kind);
  s.last_dtype = static_cast<std::uint8_t>(last.dtype);
  s.last_elements = last.elements.value();
  s.last_ranks = static_cast<std::int32_t>(to_int(last.ranks));
  s.last_stride = last.stride;
  s.last_purpose = static_cast<std::uint8_t>(last.purpose);
  s.last_unit = last.unit;
  s.operations = operations;
}

void ProgressBoard::set_meeting(Rank rank, const Meeting& meeting) {
  Slot& s = slot(rank);
  s.peer_plus_one = meeting.peer ? static_cast<std::int32_t>(to_int(*meeting.peer)) + 1 : 0;
  s.group_first = meeting.group.first;
  s.group_count = meeting.group.count;
  s.group_stride = meeting.group.stride;
  s.collective = meeting.collective;
}

void ProgressBoard::set_doing(Rank rank, std::string_view doing) {
  std::uint64_t words[20] = {};
  static_assert(sizeof words == kMostDoing + 1);
  std::memcpy(words, doing.data(), std::min(doing.size(), kMostDoing));
  for (std::size_t i = 0; i < std::size(words); ++i) slot(rank).doing[i] = words[i];
}

void ProgressBoard::add_waiting(Rank rank, int change) { slot(rank).waiting += change; }

RankProgress ProgressBoard::read(Rank rank) const {
  const Slot& s = slot(rank);
  RankProgress p;
  p.pid = s.pid;
  p.left = s.left != 0;
  p.phase = static_cast<Phase>(s.phase.load());
  p.step = s.step;
  p.operations = s.operations;
  if (p.operations > 0) {
    p.last = Operation{static_cast<CommKind>(s.last_kind.load()),
                       static_cast<DType>(s.last_dtype.load()),
                       Elements(s.last_elements),
                       WorldSize{s.last_ranks.load()},
                       s.last_stride,
                       static_cast<OpPurpose>(s.last_purpose.load()),
                       s.last_unit};
  }
  p.last_unit = last_unit();
  p.waiting = s.waiting > 0;
  p.meeting = {{s.group_first, s.group_count, s.group_stride}, {}, s.collective};
  p.moves = s.moves;
  std::uint64_t words[20] = {};
  for (std::size_t i = 0; i < std::size(words); ++i) words[i] = s.doing[i];
  p.doing = reinterpret_cast<const char*>(words);
  if (s.peer_plus_one > 0) p.meeting.peer = Rank{s.peer_plus_one - 1};
  p.heartbeat = RankProgress::Clock::time_point(std::chrono::duration_cast<RankProgress::Clock::duration>(
      std::chrono::nanoseconds(s.heartbeat_ns.load())));
  return p;
}

void ProgressBoard::set_last_unit(int unit) { header().units = unit + 1; }

int ProgressBoard::last_unit() const { return header().units - 1; }

void ProgressBoard::set_mesh(const Mesh& mesh) { mesh_ = mesh; }

std::string ProgressBoard::name_of(Rank rank) const {
  const std::string place = mesh_.place(rank);
  const bool along_several = place.find(',') != std::string::npos;
  return std::to_string(to_int(rank)) + (along_several ? " (" + place + ")" : "");
}

bool ProgressBoard::claim() {
  std::int32_t nobody = 0;
  return header().claimed.compare_exchange_strong(nobody, 1);
}

void ProgressBoard::set_reported(int exit_code) { header().reported = exit_code; }

std::optional<int> ProgressBoard::reported() const {
  const int exit_code = header().reported;
  return exit_code == 0 ? std::nullopt : std::optional(exit_code);
}

void ProgressBoard::ask_to_stop() {
  std::int64_t foremost = 0, nobody = 0;
  for (int rank = 0; rank < to_int(world_); ++rank)
    foremost = std::max<std::int64_t>(foremost, slot(Rank{rank}).step);
  // Other ranks may already have asked whether to stop after the foremost step, so all stop one step later.
  const int ahead = to_int(world_) == 1 ? 0 : 1;
  header().stops_after_plus_one.compare_exchange_strong(nobody, foremost + ahead + 1);
}

std::optional<std::int64_t> ProgressBoard::stops_after() const {
  const std::int64_t step = header().stops_after_plus_one - 1;
  return step < 0 ? std::nullopt : std::optional(step);
}

void ProgressBoard::remove_file() noexcept {
  if (!path_.empty()) ::unlink(path_.c_str());
}

}  // namespace sc

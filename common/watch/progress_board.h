// Where each rank of a host says what it is doing, so that the others can name it when it stops. No torch, no
// MPI.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/types.h"
#include "common/watch/comm_op.h"

namespace sc {

/// One rank as the board shows it. Times are steady_clock, which all processes of a host share.
struct RankProgress {
  using Clock = std::chrono::steady_clock;
  std::int64_t pid = 0;  // 0: never joined, which is how a rank on another host looks
  bool left = false;     // ended well
  Phase phase = Phase::setup;
  std::int64_t step = 0;
  std::int64_t operations = 0;    // issued so far, all groups together
  std::optional<Operation> last;  // the last one issued
  int last_unit = kNoUnit;        // of the model, for names
  bool waiting = false;           // inside a wait or a barrier
  Meeting meeting;                // the one it waits for, or waited for last
  std::int64_t moves = 0;         // grows as long as it computes or writes
  std::string doing;  // what it has come to, "action 7: SA1", "writes w.safetensors"; empty: it does not say
  Clock::time_point heartbeat;
};

/// One slot a rank. Each slot is written by its own rank and read by all; every field is atomic, and a reader
/// may see one field newer than another, which is harmless: it is read when nothing moves any more.
///   Hosts   the file is shared by the ranks of one host. Ranks of other hosts never join this board, so a
///           watchdog can say that somebody elsewhere is missing, but not who and where it stopped. A board
///           that is fed by messages would have the same functions.
///   Errors  DeviceError if the file cannot be made or mapped.
class ProgressBoard {
 public:
  /// In memory: ranks that are threads of this process.
  explicit ProgressBoard(WorldSize world) : ProgressBoard("", world) {}
  /// In the file `path`, the same for all ranks of a host, on a local file system, and new for this run (an
  /// old board would hold old claims). Whoever comes first makes it. All ranks name the same world.
  ProgressBoard(const std::string& path, WorldSize world);
  ~ProgressBoard();
  ProgressBoard(const ProgressBoard&) = delete;
  ProgressBoard& operator=(const ProgressBoard&) = delete;

  [[nodiscard]] WorldSize world() const { return world_; }
  /// This process is `rank` / has ended well, and is not missing any more.
  void join(Rank rank);
  void leave(Rank rank);
  void heartbeat(Rank rank, std::int64_t moves = 0);
  void set_position(Rank rank, Phase phase, std::int64_t step);
  void set_issued(Rank rank, std::int64_t operations, const Operation& last);
  /// What the rank's wait is for.
  void set_meeting(Rank rank, const Meeting& meeting);
  /// What it has come to; cut after kMostDoing characters.
  void set_doing(Rank rank, std::string_view doing);
  static constexpr std::size_t kMostDoing = 159;
  /// How many waits and barriers the rank is inside of.
  void add_waiting(Rank rank, int change);
  [[nodiscard]] RankProgress read(Rank rank) const;

  /// The model's last unit, for names of operations; kNoUnit: nobody has said.
  void set_last_unit(int unit);
  [[nodiscard]] int last_unit() const;
  /// What the ranks of the world are to each other, for name_of() in this process.
  void set_mesh(const Mesh& mesh);
  /// A rank with its place on the axes that have several, where there are two such: "5 (stage 1, data rank 0,
  /// tensor rank 1)"; else its number.
  [[nodiscard]] std::string name_of(Rank rank) const;

  /// True for exactly one caller in the life of the board: the one who speaks for the job.
  bool claim();
  /// The speaker has spoken, and the job ends with `exit_code` (not 0); the others may end their processes
  /// now.
  void set_reported(int exit_code);
  /// That code; empty as long as nobody has spoken.
  [[nodiscard]] std::optional<int> reported() const;

  /// All ranks end together: after the step behind the one that the foremost of them is at (of a world of
  /// one: after that one). The first call counts.
  void ask_to_stop();
  /// That step. Empty: nobody has asked.
  [[nodiscard]] std::optional<std::int64_t> stops_after() const;

  /// Removes the file's name; the mapping stays. Call it on one rank a host after all have joined: nothing is
  /// left behind then.
  void remove_file() noexcept;

 private:
  struct Slot;
  struct Header;
  [[nodiscard]] Header& header() const;
  [[nodiscard]] Slot& slot(Rank rank) const;

  WorldSize world_;
  Mesh mesh_;
  std::string path_;
  std::size_t size_;
  std::byte* base_;
};

}  // namespace sc

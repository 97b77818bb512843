// Where each rank of a host publishes what it is doing, so that the others can name it when it stops. No
// torch, no MPI.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/types.h"
#include "common/watch/comm_op.h"

namespace sc {

/// One rank's entry on the board. Times are steady_clock, which all processes of a host share.
struct RankProgress {
  using Clock = std::chrono::steady_clock;
  std::int64_t pid = 0;  // 0: never joined, as for ranks on other hosts
  bool left = false;     // ended without an error
  Phase phase = Phase::setup;
  std::int64_t step = 0;
  std::int64_t operations = 0;    // issued so far, in all groups
  std::optional<Operation> last;  // the one issued last
  int last_unit = kNoUnit;        // of the model, for messages
  bool waiting = false;           // inside a wait or a barrier
  Meeting meeting;                // the one it waits for, or waited for last
  std::int64_t moves = 0;         // grows while the rank computes or writes
  std::string doing;              // e.g. "action 7: SA1", "writes w.safetensors"; empty: not stated
  Clock::time_point heartbeat;
};

/// One slot per rank, written by that rank and read by all. Every field is atomic. A reader may see one field
/// newer than another, which is harmless, because the board is read when nothing moves any more.
///   Hosts   the file is shared by the ranks of one host. Ranks of other hosts never join this board, so a
///           watchdog can say that a rank elsewhere is missing, but not which one and where it stopped.
///   Errors  DeviceError if the file cannot be made or mapped.
class ProgressBoard {
 public:
  /// A board in memory, for ranks that are threads of this process.
  explicit ProgressBoard(WorldSize world) : ProgressBoard("", world) {}
  /// A board in the file `path`, which is the same for all ranks of a host, on a local file system, and new
  /// for this run, since an old board would hold old claims. The first rank to come makes it. All ranks pass
  /// the same world.
  ProgressBoard(const std::string& path, WorldSize world);
  ~ProgressBoard();
  ProgressBoard(const ProgressBoard&) = delete;
  ProgressBoard& operator=(const ProgressBoard&) = delete;

  [[nodiscard]] WorldSize world() const { return world_; }
  /// join() says that this process is `rank`; leave() that it has ended without an error and is not missing.
  void join(Rank rank);
  void leave(Rank rank);
  void heartbeat(Rank rank, std::int64_t moves = 0);
  void set_position(Rank rank, Phase phase, std::int64_t step);
  void set_issued(Rank rank, std::int64_t operations, const Operation& last);
  /// Sets the ranks that the rank's current wait depends on.
  void set_meeting(Rank rank, const Meeting& meeting);
  /// Sets what the rank is doing now; cut after kMostDoing characters.
  void set_doing(Rank rank, std::string_view doing);
  static constexpr std::size_t kMostDoing = 159;
  /// Changes the number of waits and barriers that the rank is inside of.
  void add_waiting(Rank rank, int change);
  [[nodiscard]] RankProgress read(Rank rank) const;

  /// Sets the model's last unit, for names of operations; kNoUnit: not known.
  void set_last_unit(int unit);
  [[nodiscard]] int last_unit() const;
  /// Sets the mesh of the world, which name_of() uses in this process.
  void set_mesh(const Mesh& mesh);
  /// The rank's number; if two or more axes have several ranks, with its coordinates: "5 (stage 1, data rank
  /// 0, tensor rank 1)".
  [[nodiscard]] std::string name_of(Rank rank) const;

  /// True for exactly one caller in the board's life: the one that prints the job's message.
  bool claim();
  /// Says that the claimant has printed its message, and the job ends with `exit_code` (not 0); other ranks
  /// may now end their processes.
  void set_reported(int exit_code);
  /// The exit code of set_reported(); empty until then.
  [[nodiscard]] std::optional<int> reported() const;

  /// Asks all ranks to stop after the same step: the one after the foremost rank's current step, or in a
  /// world of one the current step. Later calls have no effect.
  void ask_to_stop();
  /// The step of ask_to_stop(). Empty: nobody has asked.
  [[nodiscard]] std::optional<std::int64_t> stops_after() const;

  /// Removes the file's name; the mapping stays. One rank per host calls it after all have joined, so that
  /// nothing is left behind.
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

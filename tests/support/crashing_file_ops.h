// A simulated machine crash in the middle of file operations, for tests of what must survive one. No torch.
#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <stdexcept>

#include "tests/support/file_ops_decorators.h"

namespace sc {

/// CrashingFileOps throws this where a real crash would end the program.
class Crash : public std::runtime_error {
 public:
  Crash() : std::runtime_error("simulated crash") {}
};

/// What a crash does to writes and names that were not synced.
struct CrashLoss {
  enum class Data {
    kept,
    lost,
    zeroed
  };  // zeroed: the file has its new length, unsynced bytes past the old one are zeros
  enum class Names { kept, lost };
  Data data = Data::lost;
  Names names = Names::lost;
};
inline constexpr CrashLoss kCrashLosses[] = {
    {CrashLoss::Data::kept, CrashLoss::Names::kept},   {CrashLoss::Data::kept, CrashLoss::Names::lost},
    {CrashLoss::Data::lost, CrashLoss::Names::kept},   {CrashLoss::Data::lost, CrashLoss::Names::lost},
    {CrashLoss::Data::zeroed, CrashLoss::Names::kept}, {CrashLoss::Data::zeroed, CrashLoss::Names::lost},
};

/// Performs mutating calls number 0 .. n-1 on real files, then crashes: data and names that were not synced
/// are lost as `loss` says, and this and every later call that a hook sees throws Crash and does nothing.
///   Model   Data is durable after File::sync, names (created, renamed, swapped, removed) after sync_dir of
///           their directory. Every mutating call is recorded with its undo until then; the crash undoes what
///           is left, newest first. If the crash falls on a write whose data is kept, the first half of the
///           data arrives. `inner` may be posix_file_ops(Syncing::skip): the model stands for the device.
///   Limits  One thread. A File is not used after its file was renamed. Overwritten bytes are copied, so
///           files should be small.
class CrashingFileOps final : public HookedFileOps {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  explicit CrashingFileOps(FileOps& inner, std::int64_t crash_at = kNever, CrashLoss loss = {});
  ~CrashingFileOps() override;

  /// Mutating calls so far, which is the number of crash points of a run with the same calls.
  [[nodiscard]] std::int64_t calls() const { return calls_; }
  [[nodiscard]] bool crashed() const { return crashed_; }

 protected:
  void before(const FileCall& call) override;
  void after(const FileCall& call, bool changed) override;

 private:
  struct Undo;
  void record(const FileCall& call);
  void save_replaced(Undo& undo, const Path& path);
  void settle_rename(const FileCall& call);
  void crash(const FileCall& call);
  void undo_data();
  void undo_names();
  void forget_data(const Path& path);

  std::int64_t crash_at_, calls_ = 0;
  CrashLoss loss_;
  bool crashed_ = false;
  std::list<std::unique_ptr<Undo>> undo_;  // newest first; only what is not durable yet
  std::unique_ptr<Undo> pending_;          // of the call in progress
};

}  // namespace sc

// Tests saves and removals of checkpoints that crash at each system call, or run out of disk space.
#include <algorithm>
#include <cerrno>

#include "tests/storage/checkpoint_support.h"
#include "tests/support/crashing_file_ops.h"

namespace sc::checkpoint {
namespace {

using namespace sc::checkpoint::test;  // NOLINT
using Steps = std::vector<std::int64_t>;
using CheckpointCrash = InTempDir;
using CheckpointRemoval = InTempDir;
using CheckpointCommit = InTempDir;
using CheckpointFullDisk = InTempDir;

const std::vector<TensorShape> kTiny = {{"a", {7}}, {"b", {2}}};

/// The steps of all checkpoints in `dir`, each of which must be whole.
Steps whole_steps(FileOps& ops, const Path& dir) {
  Steps steps;
  for (const Generation& generation : generations(ops, dir)) {
    EXPECT_EQ(input_error([&] { Reader(ops, generation.path).verify(); }), "no InputError");
    steps.push_back(generation.step);
  }
  return steps;
}

void save_and_remove(FileOps& ops, const Path& dir) {
  save(ops, dir, manifest_of(30, 2, kTiny), cut(2, kTiny, {"master"}));
  remove_old_generations(ops, dir, 30, 2);
}

TEST_F(CheckpointCrash, EveryOneLeavesTheOldGenerationsOrTheNew) {
  const std::vector<Steps> allowed = {{10, 20}, {10, 20, 30}, {20, 30}};
  std::vector<int> seen(allowed.size());
  for (const CrashLoss& loss : kCrashLosses) {
    for (std::int64_t point = 0;; ++point) {
      const TempDir dir;
      for (std::int64_t step : {10, 20}) {
        save(*ops_, dir.path(), manifest_of(step, 2, kTiny), cut(2, kTiny, {"master"}));
      }
      CrashingFileOps crashing(*ops_, point, loss);
      try {
        save_and_remove(crashing, dir.path());
      } catch (const Crash&) {
      }
      const Steps found = whole_steps(*ops_, dir.path());
      const auto at = std::find(allowed.begin(), allowed.end(), found);
      ASSERT_NE(at, allowed.end()) << "crash at call " << point << ", data " << static_cast<int>(loss.data)
                                   << ", names " << static_cast<int>(loss.names);
      ++seen[static_cast<std::size_t>(at - allowed.begin())];
      const bool returned = !crashing.crashed();
      if (returned) {
        // The save has returned, so its checkpoint must survive a crash at the very next call.
        EXPECT_THROW(crashing.make_dir(dir / "next"), Crash);
        EXPECT_EQ(newest_whole(*ops_, dir.path()).found->step, 30);
      }
      save_and_remove(*ops_, dir.path());
      EXPECT_EQ(ops_->list(dir.path()), (std::vector<std::string>{"step-000020", "step-000030"}))
          << "leftovers after call " << point;
      if (returned) break;
    }
  }
  for (const int count : seen) EXPECT_GT(count, 0);
}

TEST_F(CheckpointCrash, ASaveThatReplacesAGeneration) {
  int points = 0;
  for (const CrashLoss& loss : kCrashLosses) {
    for (std::int64_t point = 0;; ++point) {
      const TempDir dir;
      save(*ops_, dir.path(), manifest_of(30, 2, kTiny), cut(2, kTiny, {"master"}));
      CrashingFileOps crashing(*ops_, point, loss);
      try {
        save(crashing, dir.path(), manifest_of(30, 3, kTiny), cut(3, kTiny, {"master"}));
      } catch (const Crash&) {
      }
      ASSERT_EQ(whole_steps(*ops_, dir.path()), Steps{30});
      const std::int64_t world = Reader(*ops_, dir / "step-000030").manifest().world;
      EXPECT_TRUE(world == 2 || world == 3);
      if (!crashing.crashed()) {
        EXPECT_EQ(world, 3);
        break;
      }
      ++points;
    }
  }
  EXPECT_GT(points, 60);
}

/// File operations that note renames, directory syncs and removals in their order.
class NotingFileOps final : public HookedFileOps {
 public:
  using HookedFileOps::HookedFileOps;
  std::vector<std::string> notes;

 protected:
  void after(const FileCall& call, bool changed) override {
    if (call.op != FileOp::rename && call.op != FileOp::sync_dir && call.op != FileOp::remove) return;
    notes.push_back(std::string(sc::name_of(call.op)) + " " + call.path.filename().string());
  }
};

// A removal must sync the rename before it deletes a file: a real disk may lose names in another order than
// the crash model does.
TEST_F(CheckpointRemoval, TheNameIsGoneForGoodBeforeAnythingElseGoes) {
  for (std::int64_t step : {10, 20}) {
    save(*ops_, dir_.path(), manifest_of(step, 1, kTiny), cut(1, kTiny, {"master"}));
  }
  NotingFileOps noting(*ops_);
  remove_old_generations(noting, dir_.path(), 20, 1);
  EXPECT_EQ(noting.notes,
            (std::vector<std::string>{
                "rename step-000010", "flush the directory " + dir_.path().filename().string(),
                "remove manifest.json", "remove rank-0000.safetensors", "remove .step-000010.tmp-removed"}));
}

TEST_F(CheckpointRemoval, KeepsTheNewestAndWhatIsNewerThanTheRun) {
  for (std::int64_t step : {10, 20, 30, 40, 50}) {
    save(*ops_, dir_.path(), manifest_of(step, 1, kTiny), cut(1, kTiny, {"master"}));
  }
  ops_->make_dir(dir_ / "step-5");  // somebody's own
  ops_->create(dir_ / "notes.txt");
  remove_old_generations(*ops_, dir_.path(), 40, 2);
  EXPECT_EQ(whole_steps(*ops_, dir_.path()), (Steps{30, 40, 50}));
  remove_old_generations(*ops_, dir_.path(), 40, 3);
  EXPECT_EQ(whole_steps(*ops_, dir_.path()), (Steps{30, 40, 50}));
  remove_old_generations(*ops_, dir_.path(), 50, 1);
  EXPECT_EQ(ops_->list(dir_.path()), (std::vector<std::string>{"notes.txt", "step-000050", "step-5"}));
  EXPECT_THROW(remove_old_generations(*ops_, dir_.path(), 50, 0), std::logic_error);
}

TEST_F(CheckpointRemoval, TakesLeftoversOfTheDeadAndLeavesTheLivingAlone) {
  save(*ops_, dir_.path(), manifest_of(10, 1, kTiny), cut(1, kTiny, {"master"}));
  AtomicDir living(*ops_, dir_ / "step-000020", AtomicDir::Existing::refuse);
  for (const char* dead :
       {".step-000007.tmp-0", ".step-000010.tmp-removed", ".notes.tmp-0", ".step-7.tmp-0"}) {
    ops_->make_dir(dir_ / dead);
    ops_->create(dir_ / dead / "rank-0000.safetensors");
  }
  remove_old_generations(*ops_, dir_.path(), 10, 2);
  EXPECT_EQ(ops_->list(dir_.path()),
            (std::vector<std::string>{".notes.tmp-0", ".step-000020.tmp-0", ".step-7.tmp-0", "step-000010"}));
}

TEST_F(CheckpointFullDisk, LeavesTheOldGenerationAndNoLeftovers) {
  int failures = 0;
  for (std::int64_t nth = 0;; ++nth) {
    const TempDir dir;
    save(*ops_, dir.path(), manifest_of(20, 2, kTiny), cut(2, kTiny, {"master"}));
    FaultyFileOps full(*ops_, {.op = FileOp::write, .nth = nth, .error = ENOSPC, .lasting = true});
    const std::string error = input_error([&] { save_and_remove(full, dir.path()); });
    if (error == "no InputError") break;
    ++failures;
    EXPECT_EQ(error.substr(0, 3), "73|");
    EXPECT_NE(error.find("No space left on device (ENOSPC)|free space on the file system that holds it"),
              std::string::npos);
    EXPECT_EQ(ops_->list(dir.path()), std::vector<std::string>{"step-000020"});
  }
  EXPECT_EQ(failures, 2 + 3 + 1);  // headers, blocks, the manifest
}

TEST_F(CheckpointCommit, AnIncompleteSaveIsNotCommitted) {
  Entries entries = cut(2, kTiny, {"master"});
  entries[1].pop_back();
  const std::string error = error_of([&] { save(*ops_, dir_.path(), manifest_of(5, 2, kTiny), entries); });
  EXPECT_EQ(error.substr(0, error.rfind('|')),
            "65|DIR/.step-000005.tmp-0: elements 0 to 2 of b@master are in no file");
  EXPECT_TRUE(ops_->list(dir_.path()).empty());
}

}  // namespace
}  // namespace sc::checkpoint

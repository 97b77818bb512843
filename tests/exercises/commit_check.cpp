#include <spdlog/fmt/fmt.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "lessons/09_checkpoint_and_faults/exercise/commit.h"
#include "tests/exercises/check.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/crashing_file_ops.h"

namespace sc::exercise {
namespace {

using Content = std::optional<FileContents>;  // of a directory; nothing: it is absent

const FileContents kOld = {{"a", "old a"}, {"b", "old b"}};
const FileContents kNew = {{"a", "new a, which is longer"}, {"c", "new c"}};

std::string to_text(const CrashLoss& loss) {
  constexpr std::array<const char*, 3> kData = {"kept", "lost", "zeroed"};
  return fmt::format("unflushed data {} and unflushed names {}",
                     kData.at(static_cast<std::size_t>(loss.data)),
                     loss.names == CrashLoss::Names::kept ? "kept" : "lost");
}

/// Notes the operations that change files, the one before which a crash comes included.
class NotingFileOps final : public HookedFileOps {
 public:
  NotingFileOps(FileOps& inner, Path root) : HookedFileOps(inner), root_(std::move(root)) {}
  std::vector<std::string> notes;
  std::string early;  // a removal while a name that was given may still be forgotten

 protected:
  void before(const FileCall& call) override {
    if (!is_mutating(call.op)) return;
    notes.push_back(fmt::format("{} {}", sc::name_of(call.op), short_name(call.path)));
    if (!call.other.empty()) notes.back() += " -> " + short_name(call.other);
    if (call.op == FileOp::remove && unflushed_ && early.empty()) early = notes.back();
    if (call.op == FileOp::rename || call.op == FileOp::exchange) unflushed_ = true;
    if (call.op == FileOp::sync_dir && call.path == root_) unflushed_ = false;
  }

 private:
  [[nodiscard]] std::string short_name(const Path& path) const {
    return path == root_ ? "(the parent)" : path.lexically_relative(root_).string();
  }
  Path root_;
  bool unflushed_ = false;
};

/// One attempt to replace `before`, in a directory of its own.
struct Attempt {
  explicit Attempt(Content before) : old(std::move(before)) {
    if (!old) return;
    disk->make_dir(target);
    for (const auto& [name, bytes] : *old) disk->create(target / name)->append(as_bytes(bytes));
  }
  [[nodiscard]] Content found() const {
    if (disk->kind(target) == PathKind::absent) return {};
    FileContents files;
    for (const std::string& name : disk->list(target)) {
      const bool plain = disk->kind(target / name) == PathKind::file;
      files[name] = plain ? read_file(*disk, target / name) : "not a file";
    }
    return files;
  }
  [[nodiscard]] std::string where() const { return old ? "over an old directory: " : "where nothing was: "; }

  test::TempDir dir;
  Path target = dir / "step-000020";
  std::unique_ptr<FileOps> disk = posix_file_ops(Syncing::skip);
  Content old;
};

std::string to_text(const Content& content) {
  if (!content) return "nothing";
  std::string text;
  for (const auto& file : *content) {
    const auto is_of = [&](const FileContents& files) {
      return files.contains(file.first) && files.at(file.first) == file.second;
    };
    const char* state = is_of(kNew) ? "new" : is_of(kOld) ? "old" : file.second.empty() ? "empty" : "damaged";
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", file.first, state);
  }
  return text.empty() ? "an empty directory" : text;
}

/// The operations so far as text. The crash comes before the last one, or if `ended` after it.
std::string listed(const std::vector<std::string>& notes, bool ended) {
  std::string text = "\noperations:";
  const char* const crash = "\n  -- crash --";
  for (std::size_t i = 0; i < notes.size(); ++i) {
    if (!ended && i + 1 == notes.size()) text += crash;
    text += fmt::format("\n  {:>2}  {}", i + 1, notes[i]);
  }
  return ended ? text + crash : text;
}

void require_new_alone(const Attempt& attempt, const std::string& after) {
  require(attempt.found() == kNew, attempt.where() + after + " the directory holds " +
                                       to_text(attempt.found()) + ", not the new files");
  for (const std::string& name : attempt.disk->list(attempt.dir.path()))
    require(name == attempt.target.filename(), attempt.where() + after + " " + name + " is left beside it");
}

/// Lets a crash come before operation `point`, or just after the last one; false in the second case.
bool crashes_before(const Content& old, std::int64_t point, const CrashLoss& loss) {
  const Attempt attempt(old);
  CrashingFileOps crashing(*attempt.disk, point, loss);
  NotingFileOps noting(crashing, attempt.dir.path());
  bool ended = false;
  try {
    commit(noting, attempt.target, kNew);
    ended = !crashing.crashed();
    crashing.make_dir(attempt.dir / "what comes next");
  } catch (const Crash&) {
  }
  require(crashing.crashed(), attempt.where() + "the same call made other operations than before");
  const Content found = attempt.found();
  const std::string what = fmt::format("a crash {} operation {} ({}), with {}, leaves {}",
                                       ended ? "after" : "before", ended ? point : point + 1,
                                       noting.notes.at(static_cast<std::size_t>(ended ? point - 1 : point)),
                                       to_text(loss), to_text(found));
  require(found == kNew || (found == old && !ended), attempt.where() + what + listed(noting.notes, ended));
  commit(*attempt.disk, attempt.target, kNew);
  require_new_alone(attempt, "after the next call, which follows a crash,");
  return !ended;
}

/// Runs on a disk that accepts no more bytes from write `nth` on. False if there were fewer writes.
bool fills_the_disk(const Content& old, std::int64_t nth) {
  const Attempt attempt(old);
  FaultyFileOps full(*attempt.disk, {.op = FileOp::write, .nth = nth, .error = ENOSPC, .lasting = true});
  bool refused = false;
  try {
    commit(full, attempt.target, kNew);
  } catch (const InputError&) {
    refused = true;
  }
  const Content found = attempt.found();
  require(found == kNew || (found == old && refused),
          attempt.where() + "a disk that is full at write " + std::to_string(nth + 1) + " leaves " +
              to_text(found) + (refused ? "" : ", and nobody is told"));
  return refused;
}

/// Crashes at every operation; returns how many crashes the learner's code survived.
int check_over(const Content& old) {
  const Attempt undisturbed(old);
  NotingFileOps noting(*undisturbed.disk, undisturbed.dir.path());
  commit(noting, undisturbed.target, kNew);
  require_new_alone(undisturbed, "undisturbed,");
  int survived = 0;
  for (const CrashLoss& loss : kCrashLosses) {
    std::int64_t point = 0;
    while (crashes_before(old, point, loss)) ++point;
    survived += static_cast<int>(point) + 1;
  }
  for (std::int64_t nth = 0; fills_the_disk(old, nth);) ++nth;
  // The crash model takes names back in the order in which they were given; a real disk need not.
  require(noting.early.empty(),
          undisturbed.where() + noting.early +
              " comes before the parent is flushed: a disk may keep that and forget the new name");
  return survived;
}

std::string check() {
  const int survived = check_over({}) + check_over(kOld);
  return fmt::format(
      "{} crashes, each at another operation or with another loss, left the old or the new directory",
      survived);
}

}  // namespace

const Exercise kExercise{
    "commit",
    "write under a hidden name beside it, flush each file and then the directory;\n        "
    "give it the name in one step (rename, or exchange where an old one stands),\n        "
    "flush the parent, and remove what is hidden last",
    check};

}  // namespace sc::exercise

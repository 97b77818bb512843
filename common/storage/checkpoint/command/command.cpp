#include "common/storage/checkpoint/command/command.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "common/base/text.h"
#include "common/config/workload_table.h"
#include "common/input/printable.h"
#include "common/storage/checkpoint/generations.h"

namespace sc::checkpoint {
namespace {

constexpr std::size_t kMostPath = 5000;

[[noreturn]] void refuse_empty(const Path& path) {
  throw InputError(ExitCode::data, path.string(), "holds no checkpoint",
                   "give a directory step-NNNNNN, or one that holds such directories");
}

/// The purpose of a key with its version, e.g. "momentum" or "parameters.v2".
std::string purpose_of(const Key& key) { return text_of(Key{"", key.purpose, key.version}).substr(1); }

/// The purposes in a checkpoint, e.g. "master, momentum, variance".
std::string purposes_of(const Reader& reader) {
  std::set<std::string> purposes;
  for (const Key& key : reader.keys()) purposes.insert(purpose_of(key));
  return fmt::format("{}", fmt::join(purposes, ", "));
}

/// Lets `use` read every checkpoint, and tells `damaged` why one cannot be read. A single checkpoint's error
/// is thrown instead, and a checkpoint that was removed since it was listed is skipped, because a running
/// program removes old ones.
void read_each(FileOps& ops, const Path& dir, const std::function<void(Reader&)>& use,
               const std::function<void(const Path& path, const std::string& why)>& damaged) {
  const std::vector<Path> paths = all_checkpoints(ops, dir);
  for (const Path& path : paths) {
    try {
      Reader reader(ops, path);
      use(reader);
    } catch (const InputError& error) {
      if (paths.size() == 1) throw;
      if (ops.kind(path) != PathKind::absent) damaged(path, error.where() + ": " + error.message());
    }
  }
}

}  // namespace

int run(FileOps& ops, const Options& options, std::ostream& log) {
  if (options.command == "show" && options.entries) return show_entries(ops, options.paths[0], log);
  if (options.command == "show") return show(ops, options.paths[0], log);
  if (options.command == "verify") return verify(ops, options.paths[0], log);
  if (options.command == "diff") return diff(ops, options.paths[0], options.paths[1], log);
  return export_weights(ops, options, log);
}

std::vector<Path> all_checkpoints(FileOps& ops, const Path& path) {
  if (ops.kind(path) != PathKind::directory) {
    throw InputError(ExitCode::data, path.string(), "there is no such directory",
                     "check the path (it is relative to the working directory)");
  }
  if (is_checkpoint(ops, path)) return {path};
  std::vector<Path> paths;
  for (const Generation& generation : generations(ops, path)) paths.push_back(generation.path);
  if (paths.empty()) refuse_empty(path);
  return paths;
}

Path one_checkpoint(FileOps& ops, const Path& path, std::ostream& log) {
  if (all_checkpoints(ops, path).front() == path) return path;
  const Newest newest = newest_whole(ops, path);
  for (const PassedOver& passed : newest.passed_over) {
    log << fmt::format("passed over {}: {}\n", shown(passed.path.string(), kMostPath), passed.why);
  }
  if (newest.found) return newest.found->path;
  throw InputError(ExitCode::data, path.string(), "none of its checkpoints is whole",
                   "use other checkpoints");
}

int show(FileOps& ops, const Path& dir, std::ostream& log) {
  std::vector<std::vector<std::string>> rows = {{"checkpoint", "step", "lesson", "world", "bytes", "saved"}};
  std::string damaged;
  read_each(
      ops, dir,
      [&](const Reader& reader) {
        const Manifest& m = reader.manifest();
        rows.push_back({shown(reader.path().filename().string()), std::to_string(m.step), shown(m.lesson),
                        std::to_string(m.world), human_bytes(reader.bytes()), shown(purposes_of(reader))});
      },
      [&](const Path&, const std::string& why) { damaged += fmt::format("damaged: {}\n", why); });
  log << table(rows) << damaged;
  return 0;
}

int show_entries(FileOps& ops, const Path& dir, std::ostream& log) {
  const Reader reader(ops, one_checkpoint(ops, dir, log));
  std::map<std::string_view, std::size_t> place;  // position in the model's order
  for (const TensorShape& tensor : reader.manifest().tensors) place.emplace(tensor.name, place.size());
  struct Row {
    std::size_t place, file;
    const Entry* entry;
  };
  std::vector<Row> found;
  for (std::size_t f = 0; f < reader.files().size(); ++f) {
    for (const Entry& entry : reader.files()[f].entries()) {
      const auto at = place.find(entry.key.tensor);
      found.push_back({at == place.end() ? place.size() : at->second, f, &entry});
    }
  }
  std::ranges::sort(found, {}, [](const Row& row) {
    return std::tuple(row.place, row.entry->key, row.entry->columns, row.entry->range.begin);
  });
  std::vector<std::vector<std::string>> rows = {{"tensor", "purpose", "elements", "of", "file"}};
  for (const Row& row : found) {
    const Key& key = row.entry->key;
    rows.push_back({shown(key.tensor), shown(purpose_of(key)),
                    name_of(*row.entry).substr(text_of(key).size()), std::to_string(reader.numel(key.tensor)),
                    reader.files()[row.file].path().filename().string()});
  }
  log << table(rows);
  return 0;
}

int verify(FileOps& ops, const Path& dir, std::ostream& log) {
  int damaged = 0, whole = 0;
  read_each(
      ops, dir,
      [&](Reader& reader) {
        reader.verify();
        const Manifest& m = reader.manifest();
        (void)workload_of_texts(m.workload, (reader.path() / kManifestName).string());
        ++whole;
        log << fmt::format("{}: whole, {} in {} file{}\n", shown(reader.path().string(), kMostPath),
                           human_bytes(reader.bytes()), m.world, m.world == 1 ? "" : "s");
      },
      [&](const Path& path, const std::string& why) {
        ++damaged;
        log << fmt::format("{}: damaged: {}\n", shown(path.string(), kMostPath), why);
      });
  if (damaged == 0) return 0;
  throw InputError(ExitCode::data, dir.string(),
                   fmt::format("{} of its {} checkpoints are damaged", damaged, whole + damaged),
                   "resume from another one, and remove what is damaged");
}

}  // namespace sc::checkpoint

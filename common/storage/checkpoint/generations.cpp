#include "common/storage/checkpoint/generations.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "common/input/printable.h"
#include "common/storage/checkpoint/reader.h"

namespace sc::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";

/// Whether AtomicDir or remove_generation() gives such a temporary name to a generation.
bool is_leftover(std::string_view name) {
  constexpr std::string_view kTemporary = ".tmp-";
  const std::size_t end = name.find(kTemporary);
  if (end == std::string_view::npos || !name.starts_with('.') || !step_of_name(name.substr(1, end - 1)))
    return false;
  const std::string_view k = name.substr(end + kTemporary.size());
  return k == "removed" || (!k.empty() && k.find_first_not_of("0123456789") == std::string_view::npos);
}

/// The first file that a removal would delete although no save put it there; empty if there is none. A
/// symbolic link is removed as a link, so its target does not matter.
std::string foreign_file(FileOps& ops, const Path& generation) {
  if (ops.kind_of_name(generation) != PathKind::directory) return {};
  for (const std::string& name : ops.list(generation)) {
    const PathKind kind = ops.kind_of_name(generation / name);
    if (kind != PathKind::link && !(kind == PathKind::file && is_file_of_checkpoint(name))) return name;
  }
  return {};
}

/// [anchor: name-first]
/// The name goes first, and for good, so that a crash leaves the whole checkpoint or a leftover. If the
/// generation is a symbolic link, the name is all that is removed.
void remove_generation(FileOps& ops, const Path& dir, std::int64_t step) {
  const std::string name = generation_name(step);
  Path removed = dir / fmt::format(".{}.tmp-removed", name);
  for (int k = 0; ops.kind_of_name(removed) != PathKind::absent; ++k)
    removed = dir / fmt::format(".{}.tmp-{}", name, k);
  if (ops.kind_of_name(dir / name) == PathKind::link) return ops.remove(dir / name);
  ops.rename(dir / name, removed);
  ops.sync_dir(dir);
  remove_tree(ops, removed);
}

}  // namespace

std::string generation_name(std::int64_t step) { return fmt::format("{}{:06}", kPrefix, step); }

std::optional<std::int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = -1;
  const std::string_view digits = name.substr(kPrefix.size());
  std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return step >= 0 && generation_name(step) == name ? std::optional(step) : std::nullopt;
}

bool is_file_of_checkpoint(std::string_view name) {
  return name == kManifestName || (name.starts_with("rank-") && name.ends_with(".safetensors"));
}

std::vector<Generation> generations(FileOps& ops, const Path& dir) {
  std::vector<Generation> found;
  if (ops.kind(dir) == PathKind::absent) return found;
  for (const std::string& name : ops.list(dir)) {
    const auto step = step_of_name(name);
    if (step && ops.kind(dir / name) == PathKind::directory) found.push_back({*step, dir / name});
  }
  std::sort(found.begin(), found.end(),
            [](const Generation& a, const Generation& b) { return a.step < b.step; });
  return found;
}

Newest newest_whole(FileOps& ops, const Path& dir) {
  Newest newest;
  std::vector<Generation> all = generations(ops, dir);
  std::reverse(all.begin(), all.end());
  for (const Generation& generation : all) {
    try {
      Reader(ops, generation.path).verify();
      newest.found = generation;
      return newest;
    } catch (const InputError& error) {
      newest.passed_over.push_back({generation.path, error.where() + ": " + error.message()});
    }
  }
  return newest;
}

// [anchor: name-last]
void commit_generation(FileOps& ops, AtomicDir& out, const Manifest& manifest) {
  const std::string text = text_of(manifest);
  out.write_file(kManifestName, [&](File& file) { file.append(as_bytes(text)); });
  const Reader reader(ops, out.path());
  out.commit();
}

std::vector<PassedOver> remove_old_generations(FileOps& ops, const Path& dir, std::int64_t newest_step,
                                               std::int64_t keep) {
  if (keep < 1) throw std::logic_error("checkpoint: at least one generation is kept");
  for (const std::string& name : ops.list(dir)) {
    if (is_leftover(name)) remove_leftover(ops, dir / name, Leftover::directory, is_file_of_checkpoint);
  }
  std::vector<Generation> all = generations(ops, dir);
  std::erase_if(all, [&](const Generation& generation) { return generation.step > newest_step; });
  const auto total = static_cast<std::int64_t>(all.size());
  std::vector<PassedOver> stay;
  for (std::int64_t i = 0; i < total - keep; ++i) {
    const auto& [step, path] = all[static_cast<std::size_t>(i)];
    try {
      const std::string foreign = foreign_file(ops, path);
      if (foreign.empty())
        remove_generation(ops, dir, step);
      else
        stay.push_back(
            {path, fmt::format("{}: no run has put it there", printable((path / foreign).string()))});
    } catch (const InputError& refused) {
      stay.push_back({path, fmt::format("{}: {}", refused.where(), refused.message())});
    }
  }
  return stay;
}

}  // namespace sc::checkpoint

#include "common/config/field_table.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <stdexcept>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/other_names.h"

namespace sc {
namespace {

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

std::string describe(const Field& field, const Origins& origins) {
  const auto origin = origins.find(field.path);
  return fmt::format("{}\n  {}\n  type     {}{}\n  allowed  {}\n  default  {}\n  value    {}, from {}\n",
                     field.path, field.doc, field.type, field.unit.empty() ? "" : ", in " + field.unit,
                     field.allowed(), field.default_text, field.get(),
                     origin == origins.end() ? "the default" : origin->second);
}

}  // namespace

std::string Field::allowed() const {
  std::string words = fmt::format("{}", fmt::join(choices, ", "));
  if (words.empty() && range.empty()) return "any";
  return words + (words.empty() || range.empty() ? "" : ", or ") + range;
}

FieldSet::FieldSet(std::vector<Field> fields) : fields_(std::move(fields)) {
  std::vector<std::string> seen = paths();
  std::sort(seen.begin(), seen.end());
  const auto twice = std::adjacent_find(seen.begin(), seen.end());
  if (twice != seen.end()) throw std::logic_error("two fields of one table are called " + *twice);
}

const Field* FieldSet::find(std::string_view path) const {
  const auto found =
      std::find_if(fields_.begin(), fields_.end(), [path](const Field& f) { return f.path == path; });
  return found == fields_.end() ? nullptr : &*found;
}

bool FieldSet::has_group(std::string_view path) const {
  const std::string prefix = std::string(path) + ".";
  return std::any_of(fields_.begin(), fields_.end(),
                     [&prefix](const Field& f) { return f.path.compare(0, prefix.size(), prefix) == 0; });
}

std::vector<std::string> FieldSet::paths() const {
  std::vector<std::string> all;
  all.reserve(fields_.size());
  for (const Field& field : fields_) all.push_back(field.path);
  return all;
}

void FieldSet::set(std::string_view path, const Value& value, const std::string& where) const {
  const Field* field = find(path);
  if (field == nullptr) throw std::logic_error("no field " + std::string(path));
  try {
    field->set(value);
  } catch (const FieldError& error) {
    throw InputError(ExitCode::usage, where, fmt::format("{}: {}", path, error.what()),
                     fmt::format("{} takes {}: {} (default {})", path, field->type, field->allowed(),
                                 field->default_text));
  }
}

std::string FieldSet::canonical_text() const {
  std::vector<std::string> lines;
  lines.reserve(fields_.size());
  for (const Field& field : fields_) lines.push_back(field.path + "=" + field.get() + "\n");
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}", fmt::join(lines, ""));
}

std::string FieldSet::hash() const { return hex_sha256(canonical_text()); }

std::string nearest_key(std::string_view key, const std::vector<const FieldSet*>& sets) {
  std::vector<std::string> candidates;
  for (const FieldSet* set : sets) {
    for (const Field& field : set->fields()) {
      if (last_part(field.path) == last_part(key)) return field.path;
      candidates.push_back(field.path);
    }
  }
  return nearest(key, candidates);
}

std::string explain(std::string_view key, const std::vector<const FieldSet*>& sets, const Origins& origins) {
  const std::string group = std::string(key) + ".";
  std::string out;
  for (const FieldSet* set : sets) {
    for (const Field& field : set->fields()) {
      const bool wanted =
          key == "all" || field.path == key || field.path.compare(0, group.size(), group) == 0;
      if (!wanted) continue;
      if (!out.empty()) out += "\n";
      out += describe(field, origins);
    }
  }
  if (!out.empty()) return out;
  const std::string near = nearest_key(key, sets);
  if (const std::string newer = newer_for(key); !newer.empty())
    throw InputError(ExitCode::usage, fmt::format("--explain {}", key), "is no key any more", newer);
  throw InputError(ExitCode::usage, fmt::format("--explain {}", key),
                   fmt::format("there is no key \"{}\"", key),
                   near.empty() ? "--explain all lists every key" : fmt::format("--explain {}", near));
}

}  // namespace sc

#include "common/config/resolve.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>

#include "common/base/check.h"
#include "common/config/json_reader.h"
#include "common/config/other_names.h"
#include "common/config/workload_table.h"

namespace sc {
namespace {

// The fields that one file may set, and those that belong in the other: a workload's and a strategy's.
struct Scope {
  const FieldSet& own;
  const FieldSet& other;
  std::string other_name, other_home;  // for messages: "a strategy's key", "the strategy's config.json"
};

[[noreturn]] void refuse_key(const std::string& key, const std::string& where, const FieldSet& a,
                             const FieldSet& b) {
  if (a.has_group(key) || b.has_group(key)) {
    throw InputError(ExitCode::usage, where, fmt::format("\"{}\" is a group of keys, not a value", key),
                     fmt::format("--explain {} lists them", key));
  }
  const std::pair<std::string, std::string> known[] = {
      {fmt::format("\"{}\" is a key of other programs", key), ours_for(key)},
      {fmt::format("\"{}\" is no key any more", key), newer_for(key)},
      {fmt::format("this lesson has no key \"{}\"", key), instead_of(key)}};
  for (const auto& [what, fix] : known)
    if (!fix.empty()) throw InputError(ExitCode::usage, where, what, fix);
  const std::string near = nearest_key(key, {&a, &b});
  throw InputError(
      ExitCode::usage, where,
      fmt::format("there is no key \"{}\"{}", key, near.empty() ? "" : "; did you mean \"" + near + "\"?"),
      "--explain all lists every key; docs/config.md describes them");
}

// Translates a workload file from the time when evaluations were counted in batches, and says so in `note`.
std::vector<JsonEntry> with_older_keys(std::vector<JsonEntry> entries, std::string& note) {
  std::map<std::string, std::string> values;
  for (const JsonEntry& entry : entries) values.emplace(entry.path, entry.value.text);
  if (values.contains("data.validation_rows")) return entries;
  values.emplace("batch.micro", std::to_string(BatchConfig().micro));
  const std::map<std::string, std::string> today = in_todays_keys(values);
  const auto old = std::ranges::find(entries, "data.validation_batches", &JsonEntry::path);
  const auto rows = today.find("data.validation_rows");
  if (old == entries.end() || rows == today.end()) return entries;
  note = fmt::format("{}: validation_batches {} of batch.micro {} rows: taken as \"validation_rows\": {}",
                     old->key_where, old->value.text, values.at("batch.micro"), rows->second);
  old->path = rows->first, old->value.text = rows->second;
  return entries;
}

void apply_file(const std::string& path, const std::string& asked_by, const Scope& scope, Origins& origins,
                std::string& note) {
  if (path.empty()) return;
  for (const JsonEntry& entry : with_older_keys(read_json(read_config_file(path, asked_by), path), note)) {
    if (scope.own.find(entry.path) == nullptr) {
      if (scope.other.find(entry.path) == nullptr)
        refuse_key(entry.path, entry.key_where, scope.own, scope.other);
      throw InputError(
          ExitCode::usage, entry.key_where, fmt::format("\"{}\" is {}", entry.path, scope.other_name),
          fmt::format("move it to {}, or give --set {}={}", scope.other_home, entry.path, entry.value.text));
    }
    scope.own.set(entry.path, entry.value, entry.value_where);
    origins[entry.path] = entry.value_where;
  }
}

// Refuses two settings of one key with different values, because nobody can know which was meant.
void refuse_contradictions(const std::vector<Setting>& settings) {
  std::map<std::string, const Setting*> first;
  for (const Setting& setting : settings) {
    const auto [found, is_new] = first.emplace(setting.key, &setting);
    if (is_new || found->second->value == setting.value) continue;
    throw InputError(
        ExitCode::usage, setting.where,
        fmt::format("{} is also given by \"{}\", with another value", setting.key, found->second->where),
        "remove one of them");
  }
}

void apply_settings(const std::vector<Setting>& settings, const FieldSet& workload, const FieldSet& strategy,
                    Origins& origins) {
  refuse_contradictions(settings);
  for (const Setting& setting : settings) {
    const FieldSet& set = workload.find(setting.key) != nullptr ? workload : strategy;
    if (set.find(setting.key) == nullptr) refuse_key(setting.key, setting.where, workload, strategy);
    set.set(setting.key, {Value::Form::flag, setting.value}, setting.where);
    origins[setting.key] = setting.where;
  }
}

}  // namespace

ResolvedConfig resolve(const ConfigSources& sources, const FieldSet& strategy) {
  ResolvedConfig config;
  const FieldSet workload = workload_fields().bind(config.workload);
  for (const Field& field : strategy.fields()) {
    if (workload.find(field.path) != nullptr)
      throw std::logic_error(field.path + " is a key of workload and strategy");
  }
  apply_file(sources.workload_file, "--workload " + sources.workload_file,
             {workload, strategy, "a key of the strategy, not of the workload", "the strategy's config.json"},
             config.origins, config.note);
  apply_file(sources.strategy_file, "--strategy " + sources.strategy_file,
             {strategy, workload, "a key of the workload, not of the strategy", "a workload file (configs/)"},
             config.origins, config.note);
  apply_settings(sources.settings, workload, strategy, config.origins);
  resolve_dtypes(config.workload.precision);
  return config;
}

Workload load_workload(const std::string& path) { return resolve({path, "", {}}, FieldSet()).workload; }

std::string origin_of(const Origins& origins, const std::string& key) {
  const auto found = origins.find(key);
  return found == origins.end() ? "the default of " + key : found->second;
}

std::string origin_of_any(const Origins& origins, const std::vector<std::string>& keys) {
  const std::string* file = nullptr;
  for (const std::string& key : keys) {
    const auto found = origins.find(key);
    if (found == origins.end()) continue;
    if (found->second.rfind("--", 0) == 0) return found->second;
    if (file == nullptr) file = &found->second;
  }
  return file != nullptr ? *file : origin_of(origins, keys.front());
}

}  // namespace sc

#include "pipedream/json_input.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

namespace {

std::vector<Action> read_list(const nlohmann::json& list, int stage, const std::string& where) {
  if (!list.is_array()) throw InputError(ExitCode::data, where, "is no list", "write [\"F0\", ...]");
  std::vector<Action> actions;
  actions.reserve(list.size());
  for (const nlohmann::json& text : list) {
    if (!text.is_string()) throw InputError(ExitCode::data, where, "holds what is no text", "write \"F0\"");
    actions.push_back(parse_action(text.get<std::string>(), stage, where));
  }
  return actions;
}

}  // namespace

std::string to_json(const Schedule& schedule) {
  std::string text = "{\n  \"schedule\": \"" + schedule.name +
                     "\",\n  \"stages\": " + std::to_string(schedule.stages) +
                     ",\n  \"microbatches\": " + std::to_string(schedule.microbatches) +
                     ",\n  \"chunks\": " + std::to_string(schedule.chunks) + ",\n  \"versions\": \"";
  (text += name_of(schedule.versions)) += "\",\n  \"actions\": [";
  const char* stage_separator = "\n    [";
  for (const std::vector<Action>& list : schedule.actions) {
    text += stage_separator;
    const char* separator = "\"";
    for (const Action& action : list) {
      ((text += separator) += to_text(action)) += '"';
      separator = ", \"";
    }
    stage_separator = "],\n    [";
  }
  return text + "]\n  ]\n}\n";
}

Schedule schedule_from_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  JsonObject object(json, where);
  Schedule schedule;
  schedule.name = object.text("schedule");
  schedule.stages = object.integer("stages");
  schedule.microbatches = object.integer("microbatches");
  schedule.chunks = object.integer("chunks");
  if (const std::string rule = object.text("versions"); !rule_from_name(rule, schedule.versions)) {
    throw InputError(ExitCode::data, where, "'" + rule.substr(0, 40) + "' is no version rule",
                     "choose flush, none, stash, vertical_sync or two_buffers");
  }
  for (const nlohmann::json& list : object.array("actions")) {
    const auto stage = static_cast<int>(schedule.actions.size());
    schedule.actions.push_back(read_list(list, stage, where + ", stage " + std::to_string(stage)));
  }
  object.finish();
  require_readable(schedule, where);
  return schedule;
}

Schedule read_schedule(const std::string& path) {
  if (path.ends_with(".csv")) return schedule_from_csv(read_text(path), path);
  if (path.ends_with(".json")) return schedule_from_json(read_text(path), path);
  throw InputError(ExitCode::usage, path, "is neither .csv nor .json", "rename the file");
}

}  // namespace sc::pipedream

#include "pipedream/json_input.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

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
  return of_text(text, where, [&](const JsonNode& node) {
    node.only({"schedule", "stages", "microbatches", "chunks", "versions", "actions"});
    Schedule schedule;
    schedule.name = node["schedule"].text();
    schedule.stages = node["stages"].small();
    schedule.microbatches = node["microbatches"].small();
    schedule.chunks = node["chunks"].small();
    if (!rule_from_name(node["versions"].text(), schedule.versions))
      node["versions"].must_be("flush, none, stash, vertical_sync or two_buffers");
    for (const JsonNode& list : node["actions"].elements()) {
      const auto stage = static_cast<int>(schedule.actions.size());
      schedule.actions.emplace_back();
      for (const JsonNode& action : list.elements())
        schedule.actions.back().push_back(
            parse_action(action.text(), stage, where + ", stage " + std::to_string(stage)));
    }
    require_readable(schedule, where);
    return schedule;
  });
}

Schedule read_schedule(const std::string& path) {
  if (path.ends_with(".csv")) return schedule_from_csv(read_text(path), path);
  if (path.ends_with(".json")) return schedule_from_json(read_text(path), path);
  throw InputError(ExitCode::usage, path, "is neither .csv nor .json", "rename the file");
}

}  // namespace sc::pipedream

#include "pipedream/cost_files.h"

#include "pipedream/json_input.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

using nlohmann::json;

namespace {

StageTimes read_times(const json& value, const std::string& where) {
  JsonObject object(value, where);
  StageTimes times;
  times.forward = object.number("forward");
  times.backward_input = object.number("backward_input");
  times.backward_weights = object.number("backward_weights");
  times.step = object.number_or("step", 0);
  object.finish();
  return times;
}

StageBytes read_bytes(const json& value, const std::string& where) {
  JsonObject object(value, where);
  StageBytes bytes;
  bytes.activations = object.number("activations");
  bytes.weights = object.number("weights");
  object.finish();
  return bytes;
}

Layer read_layer(const json& value, const std::string& where) {
  JsonObject object(value, where);
  Layer layer;
  layer.name = object.text("name");
  layer.forward = object.number("forward");
  layer.backward = object.number("backward");
  layer.output_bytes = object.number_or("output_bytes", 0);
  layer.saved_bytes = object.number_or("saved_bytes", 0);
  layer.parameter_bytes = object.number_or("parameter_bytes", 0);
  layer.block = object.flag_or("block", true);
  object.finish();
  return layer;
}

// "file, times 3" for the fourth entry.
std::string entry(const std::string& where, const char* key, std::size_t index) {
  return where + ", " + key + " " + std::to_string(index);
}

}  // namespace

Costs costs_from_json(const std::string& text, const std::string& where) {
  const json parsed = parse_json(text, where);
  JsonObject object(parsed, where);
  Costs costs;
  costs.times.clear();
  for (const json& value : object.array("times")) {
    costs.times.push_back(read_times(value, entry(where, "times", costs.times.size())));
  }
  if (object.has("bytes")) {
    costs.bytes.clear();
    for (const json& value : object.array("bytes")) {
      costs.bytes.push_back(read_bytes(value, entry(where, "bytes", costs.bytes.size())));
    }
  }
  costs.message_bytes = object.number_or("message_bytes", 0);
  costs.latency = object.number_or("latency", 0);
  costs.bandwidth = object.number_or("bandwidth", 0);
  if (object.has("bandwidths"))
    for (const json& value : object.array("bandwidths")) {
      if (!value.is_number())
        throw InputError(ExitCode::data, entry(where, "bandwidths", costs.bandwidths.size()), "not a number",
                         "bytes per unit of time, as 25e9");
      costs.bandwidths.push_back(value.get<double>());
    }
  object.finish();
  return costs;
}

Costs read_costs(const std::string& path) { return costs_from_json(read_text(path), path); }

std::string to_json(const Costs& costs) {
  json times = json::array();
  for (const StageTimes& t : costs.times) {
    times.push_back({{"forward", t.forward},
                     {"backward_input", t.backward_input},
                     {"backward_weights", t.backward_weights},
                     {"step", t.step}});
  }
  json bytes = json::array();
  for (const StageBytes& b : costs.bytes)
    bytes.push_back({{"activations", b.activations}, {"weights", b.weights}});
  json all = {{"times", times},
              {"bytes", bytes},
              {"message_bytes", costs.message_bytes},
              {"latency", costs.latency},
              {"bandwidth", costs.bandwidth}};
  if (!costs.bandwidths.empty()) all["bandwidths"] = costs.bandwidths;
  return all.dump(2) + "\n";
}

Profile profile_from_json(const std::string& text, const std::string& where) {
  const json parsed = parse_json(text, where);
  JsonObject object(parsed, where);
  Profile profile;
  profile.name = object.text("profile");
  profile.bandwidth = object.number_or("bandwidth", 0);
  profile.memory = object.number_or("memory", 0);
  for (const json& value : object.array("layers")) {
    profile.layers.push_back(read_layer(value, entry(where, "layer", profile.layers.size())));
  }
  object.finish();
  return profile;
}

Profile read_profile(const std::string& path) { return profile_from_json(read_text(path), path); }

std::string to_json(const Profile& profile) {
  json layers = json::array();
  for (const Layer& l : profile.layers) {
    layers.push_back({{"name", l.name},
                      {"forward", l.forward},
                      {"backward", l.backward},
                      {"output_bytes", l.output_bytes},
                      {"saved_bytes", l.saved_bytes},
                      {"parameter_bytes", l.parameter_bytes},
                      {"block", l.block}});
  }
  const json all = {{"profile", profile.name},
                    {"bandwidth", profile.bandwidth},
                    {"memory", profile.memory},
                    {"layers", layers}};
  return all.dump(2) + "\n";
}

}  // namespace sc::pipedream

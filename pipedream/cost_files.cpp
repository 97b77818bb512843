#include "pipedream/cost_files.h"

#include "pipedream/json_input.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

using nlohmann::json;

namespace {

StageTimes read_times(const JsonNode& node) {
  node.only({"forward", "backward_input", "backward_weights", "step"});
  return {.forward = node["forward"].number(0),
          .backward_input = node["backward_input"].number(0),
          .backward_weights = node["backward_weights"].number(0),
          .step = number_or(node, "step", 0)};
}

StageBytes read_bytes(const JsonNode& node) {
  node.only({"activations", "weights"});
  return {.activations = node["activations"].number(0), .weights = node["weights"].number(0)};
}

Layer read_layer(const JsonNode& node) {
  node.only({"name", "forward", "backward", "output_bytes", "saved_bytes", "parameter_bytes", "block"});
  return {.name = node["name"].text(),
          .forward = node["forward"].number(0),
          .backward = node["backward"].number(0),
          .output_bytes = number_or(node, "output_bytes", 0),
          .saved_bytes = number_or(node, "saved_bytes", 0),
          .parameter_bytes = number_or(node, "parameter_bytes", 0),
          .block = !node.has("block") || node["block"].boolean()};
}

}  // namespace

Costs costs_from_json(const std::string& text, const std::string& where) {
  return of_text(text, where, [](const JsonNode& node) {
    node.only({"times", "bytes", "message_bytes", "latency", "bandwidth", "bandwidths"});
    Costs costs;
    costs.times.clear();
    for (const JsonNode& times : node["times"].elements()) costs.times.push_back(read_times(times));
    if (node.has("bytes")) {
      costs.bytes.clear();
      for (const JsonNode& bytes : node["bytes"].elements()) costs.bytes.push_back(read_bytes(bytes));
    }
    costs.message_bytes = number_or(node, "message_bytes", 0);
    costs.latency = number_or(node, "latency", 0);
    costs.bandwidth = number_or(node, "bandwidth", 0);
    if (node.has("bandwidths"))
      for (const JsonNode& bandwidth : node["bandwidths"].elements())
        costs.bandwidths.push_back(bandwidth.number());
    return costs;
  });
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
  return of_text(text, where, [](const JsonNode& node) {
    node.only({"profile", "bandwidth", "memory", "layers"});
    Profile profile;
    profile.name = node["profile"].text();
    profile.bandwidth = number_or(node, "bandwidth", 0);
    profile.memory = number_or(node, "memory", 0);
    for (const JsonNode& layer : node["layers"].elements()) profile.layers.push_back(read_layer(layer));
    return profile;
  });
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

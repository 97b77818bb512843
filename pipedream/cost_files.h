// Measured costs and profiles as JSON files.
#pragma once

#include <string>

#include "pipedream/partition.h"
#include "pipedream/simulate.h"

namespace sc::pipedream {

/// Reads costs from a JSON file:
///   { "times": [{ "forward": 1, "backward_input": 1, "backward_weights": 1, "step": 0 }, ...],
///     "bytes": [{ "activations": 0, "weights": 0 }, ...], "message_bytes": 0, "latency": 0, "bandwidth": 0 }
/// `times` has one entry for all stages or one per stage; all other keys are optional, and so is "step".
/// "bandwidths": [...] may replace "bandwidth": one for each stage's link to the next stage, where the last
/// stage's next is the first. Throws InputError: data with the key, usage if the file cannot be read.
Costs read_costs(const std::string& path);
Costs costs_from_json(const std::string& text, const std::string& where);
std::string to_json(const Costs& costs);

/// Reads a profile from a JSON file:
///   { "profile": "name", "bandwidth": 0, "memory": 0,
///     "layers": [{ "name": "block 1", "forward": 1, "backward": 2, "output_bytes": 0, "saved_bytes": 0,
///                  "parameter_bytes": 0, "block": true }, ...] }
/// "bandwidth" and "memory" are optional, and of a layer everything except name, forward and backward.
Profile read_profile(const std::string& path);
Profile profile_from_json(const std::string& text, const std::string& where);
std::string to_json(const Profile& profile);

}  // namespace sc::pipedream

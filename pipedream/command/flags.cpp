#include "pipedream/command/flags.h"

#include <charconv>
#include <sstream>

#include "pipedream/cost_files.h"
#include "pipedream/error.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

namespace {

const std::vector<std::string>& shape_flags() {
  static const std::vector<std::string> names = {"stages", "microbatches", "chunks", "batches", "warmup"};
  return names;
}

std::vector<std::string> joined(std::vector<std::string> names, const std::vector<std::string>& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

// The flags that a --costs file replaces.
const std::vector<std::string>& single_cost_flags() {
  static const std::vector<std::string> names = {
      "forward",       "backward-input", "backward-weights", "step",        "uneven", "latency",
      "message-bytes", "bandwidth",      "activation-bytes", "weight-bytes"};
  return names;
}

}  // namespace

const std::vector<std::string>& schedule_flags() {
  static const std::vector<std::string> names = joined({"schedule", "versions", "file"}, shape_flags());
  return names;
}

const std::vector<std::string>& cost_flags() {
  static const std::vector<std::string> names = joined({"costs"}, single_cost_flags());
  return names;
}

Flags::Flags(const std::string& command, const std::string& what)
    : command_("pipedream " + command), options_(command_, what) {
  options_.add_options()("help", "print this");
}

void Flags::add(const std::string& names, const std::string& what, const std::string& otherwise) {
  const auto value = cxxopts::value<std::string>();
  options_.add_options()(names, what, otherwise.empty() ? value : value->default_value(otherwise));
}

void Flags::add_switch(const std::string& name, const std::string& what) {
  options_.add_options()(name, what, cxxopts::value<bool>()->default_value("false"));
}

void Flags::add_shape(const std::string& batches) {
  add("s,stages", "stages", "4");
  add("m,microbatches", "microbatches of a batch", "4");
  add("v,chunks", "model chunks a stage, interleaved and zb_h1 (interleaved: 2 unless given)", "1");
  add("b,batches", batches, "1");
  add("warmup", "more warm-up forwards on all stages but the last, 1f1b", "0");
}

void Flags::add_schedule() {
  add("schedule",
      "naive, gpipe, 1f1b, interleaved, zb_h1, pipedream, 2bw, or deadlock_send_first, deadlock_ring, which "
      "deadlock on purpose",
      "1f1b");
  add_shape("batches one behind the other (2bw: 3 unless given)");
  add("versions", "pipedream's weight versions: none, stash, vertical_sync", "stash");
  add("file", "a schedule from a .csv or .json file instead");
}

void Flags::add_costs() {
  add("forward", "time of a microbatch's forward on a stage", "1");
  add("backward-input", "time of the first half of backward", "1");
  add("backward-weights", "time of the second half", "1");
  add("step", "time of a step", "0");
  add("uneven", "factor of each stage's times, for example 1,1,2,1");
  add("latency", "time from stage to stage", "0");
  add("message-bytes", "bytes of an activation at a stage's edge", "0");
  add("bandwidth", "bytes a unit of time between two stages; 0: no limit", "0");
  add("activation-bytes", "bytes that a microbatch keeps on a stage", "0");
  add("weight-bytes", "bytes of a stage's weights", "0");
  add("costs", "all of these from a .json file, for example measured ones");
}

void Flags::add_colour() { add("color", "auto, always or never", "auto"); }

void Flags::refuse(const std::string& name, const std::string& what, const std::string& fix) const {
  throw InputError(ExitCode::usage, command_ + " --" + name, what, fix);
}

void Flags::refuse_beside(const std::string& name, const std::vector<std::string>& others) const {
  for (const std::string& other : others) {
    if (given(name) && given(other))
      refuse(other, "has no effect beside --" + name, "leave out one of the two");
  }
}

void Flags::refuse_without(const std::string& name, const std::vector<std::string>& others) const {
  for (const std::string& other : others) {
    if (!given(name) && given(other)) refuse(other, "has no effect without --" + name, "add --" + name);
  }
}

bool Flags::parse(const std::vector<std::string>& arguments, const Console& console) {
  std::vector<const char*> argv;
  argv.reserve(arguments.size());
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const std::string fix = "see " + command_ + " --help";
  try {
    result_ = options_.parse(static_cast<int>(argv.size()), argv.data());
  } catch (const cxxopts::exceptions::exception& error) {
    throw InputError(ExitCode::usage, command_, error.what(), fix);
  }
  if (!result_.unmatched().empty()) {
    throw InputError(ExitCode::usage, command_, "'" + result_.unmatched().front() + "' is no flag", fix);
  }
  if (result_.count("help") == 0) return false;
  console.out << options_.help();
  return true;
}

int Flags::integer(const std::string& name) const {
  const std::string value = text(name);
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) {
    refuse(name, "'" + value + "' is no whole number", "write for example --" + name + " 4");
  }
  return number;
}

double Flags::number(const std::string& name) const {
  const std::string value = text(name);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !(number >= 0 && number <= 1e300)) {
    refuse(name, "'" + value + "' is no number of at least 0", "write for example --" + name + " 1.5");
  }
  return number;
}

GenerateOptions Flags::shape(Family family) const {
  GenerateOptions options;
  options.family = family;
  options.stages = integer("stages");
  options.microbatches = integer("microbatches");
  options.chunks = family == Family::interleaved && !given("chunks") ? 2 : integer("chunks");
  options.batches = family == Family::two_bw && !given("batches") ? 3 : integer("batches");
  options.warmup = integer("warmup");
  return options;
}

Schedule Flags::schedule(GenerateOptions& options, bool& generated) const {
  generated = false;
  refuse_beside("file", joined({"schedule", "versions"}, shape_flags()));
  if (given("file")) return read_schedule(text("file"));
  const std::string name = text("schedule");
  if (name == "deadlock_send_first" || name == "deadlock_ring") {
    for (const std::string& flag : joined({"versions"}, shape_flags()))
      if (given(flag))
        refuse(flag, name + " is one schedule, of 4 stages and 4 microbatches", "leave it out");
    return name == "deadlock_ring" ? deadlock_ring() : deadlock_send_first();
  }
  Family family = Family::naive;
  if (!family_from_name(name, family)) {
    refuse("schedule", "there is no schedule '" + name + "'",
           "choose naive, gpipe, 1f1b, interleaved, zb_h1, pipedream, 2bw, deadlock_send_first or "
           "deadlock_ring");
  }
  options = shape(family);
  if (family != Family::pipedream && given("versions")) {
    refuse("versions", name + " has one rule", "leave it out, or choose --schedule pipedream");
  }
  if (!rule_from_name(text("versions"), options.versions)) {
    refuse("versions", "there is no version rule '" + text("versions") + "'",
           "choose none, stash or vertical_sync");
  }
  generated = true;
  return generate(options);
}

Costs Flags::costs() const {
  refuse_beside("costs", single_cost_flags());
  if (given("costs")) return read_costs(text("costs"));
  Costs costs;
  costs.times = {{number("forward"), number("backward-input"), number("backward-weights"), number("step")}};
  costs.bytes = {{number("activation-bytes"), number("weight-bytes")}};
  costs.message_bytes = number("message-bytes");
  costs.latency = number("latency");
  costs.bandwidth = number("bandwidth");
  if (!given("uneven")) return costs;
  const StageTimes even = costs.times.front();
  costs.times.clear();
  std::istringstream list(text("uneven"));
  for (std::string entry; std::getline(list, entry, ',');) {
    double factor = 0;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), factor);
    if (error != std::errc() || end != entry.data() + entry.size() || !(factor >= 0 && factor <= 1e300)) {
      refuse("uneven", "'" + entry + "' is no number of at least 0",
             "write one factor a stage, for example 1,1,2,1");
    }
    costs.times.push_back({even.forward * factor, even.backward_input * factor,
                           even.backward_weights * factor, even.step * factor});
  }
  return costs;
}

bool Flags::colour(const Console& console) const {
  const std::string choice = text("color");
  if (choice == "auto") return console.colour;
  if (choice != "always" && choice != "never") {
    refuse("color", "'" + choice + "' is no choice", "choose auto, always or never");
  }
  return choice == "always";
}

}  // namespace sc::pipedream

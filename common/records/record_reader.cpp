#include <spdlog/fmt/fmt.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/input/json_parse.h"
#include "common/input/printable.h"
#include "common/records/record.h"
#include "common/storage/bounded_file.h"

namespace sc {
namespace {

using Parsed = nlohmann::json;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw InputError(ExitCode::data, where, what, "a record that a run of this version wrote, unchanged");
}

// A record of 100,000 steps has 13 MB and 900,000 values.
constexpr JsonLimits kLimits{.bytes = std::size_t{32} << 20U};
constexpr JsonLimits kLineLimits{.bytes = std::size_t{16} << 10U};  // of steps.jsonl; a line has 200 bytes
// Far above what a run can have, and small enough for sums over all that a record holds.
constexpr std::int64_t kMost = std::int64_t{1} << 50U, kMostMoved = std::int64_t{1} << 40U;

/// A value of the file and its name for messages: "ranks[1].cores".
class Node {
 public:
  Node(const Parsed& json, std::string file, std::string name)
      : json_(json), file_(std::move(file)), name_(std::move(name)) {}

  [[nodiscard]] Node operator[](const std::string& key) const {
    const auto found = json_.is_object() ? json_.find(key) : json_.end();
    if (!json_.is_object() || found == json_.end()) fail(fmt::format("has no \"{}\"", key));
    return {*found, file_, name_.empty() ? key : name_ + "." + key};
  }
  [[nodiscard]] std::vector<Node> elements() const {
    if (!json_.is_array()) fail("is no array");
    std::vector<Node> nodes;
    for (std::size_t i = 0; i < json_.size(); ++i)
      nodes.emplace_back(json_[i], file_, fmt::format("{}[{}]", name_, i));
    return nodes;
  }
  [[nodiscard]] bool has(const std::string& key) const { return json_.is_object() && json_.contains(key); }
  [[nodiscard]] bool is_null() const { return json_.is_null(); }
  [[nodiscard]] bool is_integer() const { return json_.is_number_integer(); }
  [[nodiscard]] std::string text() const {
    if (!json_.is_string()) fail("is no text");
    return json_.get<std::string>();
  }
  [[nodiscard]] std::int64_t integer(std::int64_t least = 0, std::int64_t most = kMost) const {
    if (!json_.is_number_integer()) fail("is no whole number");
    const auto value = json_.get<std::int64_t>();  // below 0 where the number has no room in it
    if (value < least || value > most) fail(fmt::format("is not from {} to {}", least, most));
    return value;
  }
  [[nodiscard]] int small(int least = 0) const {
    return static_cast<int>(integer(least, std::numeric_limits<int>::max()));
  }
  [[nodiscard]] bool truth() const {
    if (!json_.is_boolean()) fail("is neither true nor false");
    return json_.get<bool>();
  }
  /// null, which stands for what is not finite, is NaN.
  [[nodiscard]] double number() const {
    if (json_.is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!json_.is_number()) fail("is no number");
    return json_.get<double>();
  }
  /// The same of what may be missing: null is nothing, and a word stands for what is not finite.
  [[nodiscard]] std::optional<double> optional_number() const {
    if (json_.is_null()) return {};
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const std::string word = json_.is_string() ? text() : "";
    if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (word == "inf" || word == "-inf") return word == "inf" ? kInfinity : -kInfinity;
    return number();
  }
  [[nodiscard]] std::map<std::string, std::string> texts() const {
    if (!json_.is_object()) fail("is no object");
    std::map<std::string, std::string> all;
    for (const auto& item : json_.items()) all[item.key()] = (*this)[item.key()].text();
    return all;
  }
  [[nodiscard]] std::vector<std::string> keys() const {
    if (!json_.is_object()) fail("is no object");
    std::vector<std::string> all;
    for (const auto& item : json_.items()) all.push_back(item.key());
    return all;
  }
  [[noreturn]] void fail(const std::string& what) const {
    refuse(file_, (name_.empty() ? "the file" : "\"" + shown(name_) + "\"") + " " + what);
  }

 private:
  const Parsed& json_;
  std::string file_, name_;
};

/// The enumerator whose name_of() is the text.
template <class Enum>
Enum enum_of(const Node& node, Enum last) {
  const std::string text = node.text();
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name_of(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
  }
  node.fail(fmt::format("is \"{}\", which this version does not know", shown(text)));
}

Purpose purpose_of(const Node& bytes, const std::string& key) {
  for (int p = 0; p < kPurposes; ++p)
    if (name_of(static_cast<Purpose>(p)) == key) return static_cast<Purpose>(p);
  bytes[key].fail("is no purpose that this version knows");
}

std::optional<Place> place_beside_device(const std::string& key) {
  for (const Place place : {Place::pinned, Place::host, Place::disk})
    if (name_of(place) == key) return place;
  return {};
}

RankBytes read_bytes(const Node& node) {
  RankBytes bytes;
  for (const std::string& key : node.keys()) {
    const Node value = node[key];
    if (key == "total") {
      bytes.total = Bytes(value.integer());
    } else if (key == "host" && value.is_integer()) {
      // Records from before places: what a GPU's rank held in pinned memory, without saying what for.
      bytes.of.at(Purpose::workspace, Place::pinned) = Bytes(value.integer());
    } else if (const std::optional<Place> place = place_beside_device(key)) {
      for (const std::string& name : value.keys())
        bytes.of.at(purpose_of(value, name), *place) = Bytes(value[name].integer());
    } else {
      bytes.of.at(purpose_of(node, key)) = Bytes(value.integer());
    }
  }
  (void)node["total"];  // must be there
  return bytes;
}

// Records from before operations had names lack stride, purpose and unit.
CommPlan read_operations(const Node& node, int world) {
  CommPlan plan;
  for (const Node& row : node.elements()) {
    const auto small = [&](const char* key, int otherwise, int least) {
      return row.has(key) ? row[key].small(least) : otherwise;
    };
    Operation op{enum_of(row["kind"], CommKind::disk_write), enum_of(row["dtype"], DType::u8),
                 Elements(row["elements"].integer()), WorldSize{small("ranks", world, 1)},
                 small("stride", 1, 0)};
    if (row.has("purpose")) op.purpose = enum_of(row["purpose"], OpPurpose::addresses);
    op.unit = small("unit", kNoUnit, kNoUnit);
    const std::int64_t times = row["count"].integer();
    if (times > 0 && op.elements.value() > kMostMoved / times) row.fail("moves more than a step can");
    plan.count[op] = times;
  }
  return plan;
}

RankRecord read_rank(const Node& node, int world) {
  RankRecord r;
  r.rank = Rank{node["rank"].small()};
  r.host = node["host"].text();
  r.cpu = node["cpu"].text();
  r.cores = node["cores"].small();
  r.memory = Bytes(node["memory_bytes"].integer());
  r.predicted_bytes = read_bytes(node["predicted_bytes"]);
  r.predicted_operations = read_operations(node["predicted_operations"], world);
  if (const Node n = node["measured_bytes"]; !n.is_null()) r.measured_bytes = read_bytes(n);
  if (const Node n = node["measured_operations"]; !n.is_null())
    r.measured_operations = read_operations(n, world);
  return r;
}

ModelFlops read_flops(const Node& node) {
  ModelFlops f;
  f.parameters = node["parameters"].integer();
  f.a_token = node["a_token"].number();
  f.gpus = node["gpus"].small(1);
  if (const Node n = node["peak"]; !n.is_null()) f.peak = n.number();
  f.peak_of = node["peak_of"].text();
  return f;
}

FileRecord read_file_record(const Node& node) {
  return {node["file"].text(), node["bytes"].integer(), node["sum"].text()};
}

// Times are sorted, and beside NaN nothing is in order.
void check_time(const StepRecord& step, const Node& where) {
  if (!(step.seconds >= 0)) where.fail("has a step whose \"seconds\" are no time");
}

// Of a step.
void read(const Node& node, std::int64_t& field) { field = node.integer(); }
void read(const Node& node, double& field) { field = node.number(); }
void read(const Node& node, bool& field) { field = node.truth(); }
void read(const Node& node, std::optional<double>& field) { field = node.optional_number(); }

StepRecord read_step(const Node& node) {
  StepRecord s;
  visit_step([&](const char* key, auto field) { read(node[key], s.*field); }, [](const char*, auto) {});
  if (node.has("validation_loss")) {
    s.validation_loss = node["validation_loss"].optional_number();
    if (!s.validation_loss)
      s.validation_loss = std::numeric_limits<double>::quiet_NaN();  // as it was written before
  }
  check_time(s, node);
  return s;
}

std::vector<StepRecord> read_columns(const Node& node) {
  std::vector<StepRecord> steps(node["step"].elements().size());
  const auto fill = [&](const char* key, auto field) {
    const std::vector<Node> column = node[key].elements();
    if (column.size() != steps.size())
      node[key].fail(fmt::format("has {} values for {} steps", column.size(), steps.size()));
    for (std::size_t i = 0; i < steps.size(); ++i) read(column[i], steps[i].*field);
  };
  visit_step(fill, [](const char*, auto) {});
  if (node.has("validation_loss")) fill("validation_loss", &StepRecord::validation_loss);
  for (const StepRecord& step : steps) check_time(step, node);
  return steps;
}

Parsed parse(std::string_view text, const JsonLimits& limits, const std::string& file,
             std::int64_t first_line) {
  try {
    return parse_json(text, limits);
  } catch (const JsonError& error) {
    const auto line = first_line + static_cast<std::int64_t>(error.line()) - 1;
    refuse(fmt::format("{}:{}:{}", file, line, error.column()), error.what());
  }
}

}  // namespace

RunRecord read_record(FileOps& ops, const Path& path) {
  const Parsed json = parse(read_file_up_to(ops, path, kLimits.bytes), kLimits, path.string(), 1);
  const Node node(json, path.string(), "");
  if (const Node format = node["format"]; format.integer() != 1)
    format.fail("is not 1, the one this version reads");
  RunRecord r;
  r.lesson = node["lesson"].text();
  if (shown(r.lesson) != r.lesson) node["lesson"].fail("is no name of a lesson");
  r.commit = node["commit"].text();
  r.command = node["command"].text();
  r.started = node["started"].text();
  r.seconds = node["seconds"].number();
  if (const Node n = node["exit_code"]; !n.is_null()) r.exit_code = n.small();
  r.message = node["message"].text();
  r.workload_hash = node["workload_hash"].text();
  r.workload = node["workload"].texts();
  r.strategy = node["strategy"].texts();
  r.device = node["device"].text();
  r.comm = node["comm"].text();
  r.world = node["world"].small(1);
  r.threads = node["threads"].small();
  r.versions = node["versions"].texts();
  if (node.has("init")) r.init = read_file_record(node["init"]);
  if (node.has("validation")) r.validation = read_file_record(node["validation"]);
  r.validation_loss = node["validation_loss"].optional_number();
  if (const Node n = node["flops"]; !n.is_null()) r.flops = read_flops(n);
  for (const Node& rank : node["ranks"].elements()) r.ranks.push_back(read_rank(rank, r.world));
  r.steps = read_columns(node["steps"]);
  return r;
}

RankRecord rank_of_text(const std::string& text, int world) {
  const Parsed json = parse(text, kLimits, "a rank's record", 1);
  return read_rank(Node(json, "a rank's record", ""), world);
}

std::vector<StepRecord> read_steps(FileOps& ops, const Path& path) {
  std::vector<StepRecord> steps;
  for_each_line(ops, path, kLineLimits.bytes, [&](std::string_view text, std::int64_t line) {
    const Parsed json = parse(text, kLineLimits, path.string(), line);
    steps.push_back(read_step(Node(json, fmt::format("{}:{}", path.string(), line), "")));
  });
  return steps;
}

}  // namespace sc

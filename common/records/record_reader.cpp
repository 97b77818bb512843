#include <spdlog/fmt/fmt.h>

#include <limits>
#include <string_view>
#include <utility>

#include "common/input/json_node.h"
#include "common/input/printable.h"
#include "common/records/record.h"
#include "common/storage/bounded_file.h"

namespace sc {
namespace {

// A record of 100,000 steps has 13 MB and 900,000 values, well within these bounds.
constexpr JsonLimits kLimits{.bytes = std::size_t{32} << 20U};
constexpr JsonLimits kLineLimits{.bytes = std::size_t{16} << 10U};  // of steps.jsonl; a line has 200 bytes
// Bounds far above what a run can have, and small enough for sums over a whole record.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50U, kMostMoved = std::int64_t{1} << 40U;

/// The number of a field, or NaN for null, which stands for a number that is not finite.
double number_of(const JsonNode& node) {
  return node.value().is_null() ? std::numeric_limits<double>::quiet_NaN() : node.number();
}

/// The number of an optional field: null means that it is missing, and a word stands for what is not finite.
std::optional<double> optional_number(const JsonNode& node) {
  if (node.value().is_null()) return {};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string word = node.value().is_string() ? node.text() : "";
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "inf" || word == "-inf") return word == "inf" ? kInfinity : -kInfinity;
  return node.number();
}

template <class Of>
auto unless_null(const JsonNode& node, const Of& of) {
  return node.value().is_null() ? std::nullopt : std::optional(of(node));
}

/// The enumerator whose name_of() is the text; nullopt if there is none.
template <class Enum>
std::optional<Enum> named(const std::string& text, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (name_of(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
  return {};
}

template <class Enum>
Enum enum_of(const JsonNode& node, Enum last) {
  const std::string text = node.text();
  if (const std::optional<Enum> found = named(text, last)) return *found;
  node.fail(fmt::format("is \"{}\", which this version does not know", shown(text)));
}

Purpose purpose_of(const JsonNode& bytes, const std::string& key) {
  if (const std::optional<Purpose> found = named(key, Purpose::checkpoint)) return *found;
  bytes[key].fail("is no purpose that this version knows");
}

RankBytes read_bytes(const JsonNode& node) {
  RankBytes bytes;
  for (const std::string& key : node.keys()) {
    const JsonNode value = node[key];
    if (key == "total") {
      bytes.total = Bytes(value.integer(0, kMostBytes));
    } else if (key == "host" && value.value().is_number_integer()) {
      // Records from before places have one entry for pinned memory on GPUs, without purposes.
      bytes.of.at(Purpose::workspace, Place::pinned) = Bytes(value.integer(0, kMostBytes));
    } else if (const std::optional<Place> place = named(key, Place::disk); place && *place != Place::device) {
      for (const std::string& name : value.keys())
        bytes.of.at(purpose_of(value, name), *place) = Bytes(value[name].integer(0, kMostBytes));
    } else {
      bytes.of.at(purpose_of(node, key)) = Bytes(value.integer(0, kMostBytes));
    }
  }
  (void)node["total"];  // required, though its value is not used
  return bytes;
}

// Records from before operations had payloads lack stride, purpose and unit.
CommPlan read_operations(const JsonNode& node, int world) {
  CommPlan plan;
  for (const JsonNode& row : node.elements()) {
    const auto small = [&](const char* key, int otherwise, int least) {
      return row.has(key) ? row[key].small(least) : otherwise;
    };
    Operation op{enum_of(row["kind"], CommKind::disk_write), enum_of(row["dtype"], DType::u8),
                 Elements(row["elements"].integer(0, kMostBytes)), WorldSize{small("ranks", world, 1)},
                 small("stride", 1, 0)};
    if (row.has("purpose")) op.purpose = enum_of(row["purpose"], OpPurpose::addresses);
    op.unit = small("unit", kNoUnit, kNoUnit);
    const std::int64_t times = row["count"].integer(0, kMostBytes);
    if (times > 0 && op.elements.value() > kMostMoved / times) row.fail("moves more than a step can");
    plan.count[op] = times;
  }
  return plan;
}

RankRecord read_rank(const JsonNode& node, int world) {
  const auto operations = [=](const JsonNode& of) { return read_operations(of, world); };
  return {.rank = Rank{node["rank"].small()},
          .host = node["host"].text(),
          .cpu = node["cpu"].text(),
          .cores = node["cores"].small(),
          .memory = Bytes(node["memory_bytes"].integer(0, kMostBytes)),
          .predicted_bytes = read_bytes(node["predicted_bytes"]),
          .predicted_operations = operations(node["predicted_operations"]),
          .measured_bytes = unless_null(node["measured_bytes"], read_bytes),
          .measured_operations = unless_null(node["measured_operations"], operations)};
}

ModelFlops read_flops(const JsonNode& node) {
  return {.parameters = node["parameters"].integer(),
          .a_token = number_of(node["a_token"]),
          .gpus = node["gpus"].small(1),
          .peak = unless_null(node["peak"], number_of),
          .peak_of = node["peak_of"].text()};
}

FileRecord read_file_record(const JsonNode& node) {
  return {node["file"].text(), node["bytes"].integer(), node["sum"].text()};
}

// Refuses a time that is NaN or negative: times get sorted later, and NaN has no order.
void check_time(const StepRecord& step, const JsonNode& where) {
  if (!(step.seconds >= 0)) where.fail("has a step whose \"seconds\" are no time");
}

void read(const JsonNode& node, std::int64_t& field) { field = node.integer(); }
void read(const JsonNode& node, double& field) { field = number_of(node); }
void read(const JsonNode& node, bool& field) { field = node.boolean(); }
void read(const JsonNode& node, std::optional<double>& field) { field = optional_number(node); }

StepRecord read_step(const JsonNode& node) {
  StepRecord s;
  for_each_stored_step_field([&](const char* key, auto field) { read(node[key], s.*field); });
  if (node.has("validation_loss")) {
    s.validation_loss = optional_number(node["validation_loss"]);
    if (!s.validation_loss)
      s.validation_loss = std::numeric_limits<double>::quiet_NaN();  // older records write null
  }
  check_time(s, node);
  return s;
}

std::vector<StepRecord> read_columns(const JsonNode& node) {
  std::vector<StepRecord> steps(node["step"].elements().size());
  const auto fill = [&](const char* key, auto field) {
    const std::vector<JsonNode> column = node[key].elements();
    if (column.size() != steps.size())
      node[key].fail(fmt::format("has {} values for {} steps", column.size(), steps.size()));
    for (std::size_t i = 0; i < steps.size(); ++i) read(column[i], steps[i].*field);
  };
  for_each_stored_step_field(fill);
  if (node.has("validation_loss")) fill("validation_loss", &StepRecord::validation_loss);
  for (const StepRecord& step : steps) check_time(step, node);
  return steps;
}

template <class Of>
auto of_record(std::string_view text, const JsonLimits& limits, const std::string& file, const Of& of,
               std::int64_t line = 0) {
  return of_json<InputError>(text, limits, file, ExitCode::data,
                             "a record that a run of this version wrote, unchanged", of, line);
}

RunRecord read_run(const JsonNode& node) {
  if (const JsonNode format = node["format"]; format.integer() != 1)
    format.fail("is not 1, the one this version reads");
  const std::string lesson = node["lesson"].text();
  if (shown(lesson) != lesson) node["lesson"].fail("is no name of a lesson");
  const auto file = [&](const char* key) {
    return node.has(key) ? std::optional(read_file_record(node[key])) : std::nullopt;
  };
  RunRecord r{.lesson = lesson,
              .commit = node["commit"].text(),
              .command = node["command"].text(),
              .started = node["started"].text(),
              .workload = node["workload"].texts(),
              .workload_hash = node["workload_hash"].text(),
              .strategy = node["strategy"].texts(),
              .device = node["device"].text(),
              .comm = node["comm"].text(),
              .world = node["world"].small(1),
              .threads = node["threads"].small(),
              .versions = node["versions"].texts(),
              .flops = unless_null(node["flops"], read_flops),
              .init = file("init"),
              .validation = file("validation"),
              .validation_loss = optional_number(node["validation_loss"]),
              .seconds = number_of(node["seconds"]),
              .exit_code = unless_null(node["exit_code"], [](const JsonNode& code) { return code.small(); }),
              .message = node["message"].text()};
  for (const JsonNode& rank : node["ranks"].elements()) r.ranks.push_back(read_rank(rank, r.world));
  r.steps = read_columns(node["steps"]);
  return r;
}

}  // namespace

RunRecord read_record(FileOps& ops, const Path& path) {
  return of_record(read_file_up_to(ops, path, kLimits.bytes), kLimits, path.string(), read_run);
}

RankRecord rank_of_text(const std::string& text, int world) {
  return of_record(text, kLimits, "a rank's record",
                   [&](const JsonNode& node) { return read_rank(node, world); });
}

std::vector<StepRecord> read_steps(FileOps& ops, const Path& path) {
  std::vector<StepRecord> steps;
  for_each_line(ops, path, kLineLimits.bytes, [&](std::string_view text, std::int64_t line) {
    steps.push_back(of_record(text, kLineLimits, path.string(), read_step, line));
  });
  return steps;
}

}  // namespace sc

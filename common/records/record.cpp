#include "common/records/record.h"

#include <spdlog/fmt/chrono.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>

#include "common/records/json.h"
#include "common/storage/atomic_dir.h"

namespace sc {
namespace {

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json number_or_word(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

// The JSON of a step's values. Optional ones are null if missing, and a word if not finite.
Json json_of(std::int64_t value) { return value; }
Json json_of(double value) { return number(value); }
Json json_of(bool value) { return value; }
Json json_of(const std::optional<double>& value) { return value ? number_or_word(*value) : Json(nullptr); }

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

Json json_of(const StepRecord& s) {
  Json json;
  for_each_step_field([&](const char* key, auto field) { json[key] = json_of(std::invoke(field, s)); });
  if (s.validation_loss) json["validation_loss"] = json_of(s.validation_loss);
  return json;
}

Json json_of(const RankBytes& bytes) {
  const auto at = [&](Place place) {
    Json json = Json::object();
    for_each_purpose([&](Purpose purpose) {
      const Bytes of = bytes.of.at(purpose, place);
      if (of.value() != 0) json[std::string(name_of(purpose))] = of.value();
    });
    return json;
  };
  Json json = at(Place::device);
  json["total"] = bytes.total.value();
  for (const Place place : {Place::pinned, Place::host, Place::disk})
    if (Json beside = at(place); !beside.empty()) json[std::string(name_of(place))] = std::move(beside);
  return json;
}

Json json_of(const ModelFlops& f) {
  return {{"formula", ModelFlops::kFormula},
          {"parameters", f.parameters},
          {"a_token", f.a_token},
          {"gpus", f.gpus},
          {"peak", f.peak ? Json(*f.peak) : Json(nullptr)},
          {"peak_of", f.peak_of}};
}

Json json_of(const GpuSensors::Sample& s) {
  return {{"sm_mhz", s.sm_mhz}, {"watts", s.watts}, {"limit_watts", s.limit_watts}};
}

// The JSON of a profile, in which milliseconds and calls are sums over the profiled steps.
Json json_of(const Profile& p) {
  Json json = {{"steps", p.steps},
               {"step_milliseconds", number(p.step_milliseconds)},
               {"waited_milliseconds", number(p.waited_milliseconds)},
               {"product_rate", number(p.product_rate)},
               {"memory_rate", number(p.memory_rate)},
               {"sensors", p.sensors ? json_of(*p.sensors) : Json(nullptr)},
               {"communication", Json::array()},
               {"operations", Json::array()}};
  for (const ProfileRow& r : p.rows)
    json["operations"].push_back({{"op", r.op},
                                  {"milliseconds", number(r.milliseconds)},
                                  {"calls", r.calls},
                                  {"flops", number(r.flops)},
                                  {"bytes", number(r.bytes)},
                                  {"alone", number(r.alone)}});
  for (const ProfileCommRow& r : p.communication)
    json["communication"].push_back({{"kind", name_of(r.kind)},
                                     {"milliseconds", number(r.milliseconds)},
                                     {"calls", r.calls},
                                     {"sent", r.sent.value()},
                                     {"alone", number(r.alone)}});
  return json;
}

Json json_of(const std::vector<AllocatorCheck::Part>& parts) {
  Json json = Json::object();
  for (const AllocatorCheck::Part& part : parts) json[part.name] = part.bytes.value();
  return json;
}

Json json_of(const AllocatorCheck& c) {
  return {{"predicted", json_of(c.parts)},
          {"at_most", c.at_most},
          {"peak", c.peak.value()},
          {"windows", c.windows.value()},
          {"allocations", c.allocations ? Json(*c.allocations) : Json(nullptr)},
          {"beside", json_of(c.beside)}};
}

// The JSON of a timetable. A span takes one line: name, begin, end, and the expected begin and end.
Json json_of(const Timetable& t) {
  Json json = {{"ranks", Json::array()}, {"rows", Json::array()}};
  for (const Timetable::Row& row : t.rows)
    json["rows"].push_back(
        {{"name", row.name}, {"seconds", number(row.seconds)}, {"idle", number(row.idle)}});
  for (const std::vector<Timetable::Span>& spans : t.ranks) {
    Json& rank = json["ranks"].emplace_back(Json::array());
    for (const Timetable::Span& s : spans)
      rank.push_back(
          {s.name, number(s.begin), number(s.end), number(s.expected_begin), number(s.expected_end)});
  }
  const auto behind = [](const std::map<std::int64_t, std::int64_t>& counts) {
    Json json = Json::object();
    for (const auto& [updates, microbatches] : counts) json[std::to_string(updates)] = microbatches;
    return json;
  };
  for (const Timetable::Share& share : t.shares)
    json["shares"].push_back({{"name", share.name}, {"seconds", share.seconds}});
  for (const VersionsRead& v : t.versions)
    json["updates_behind"].push_back({{"forward", behind(v.forward)}, {"backward", behind(v.backward)}});
  return json;
}

Json timing_json(const RunRecord& r) {
  const std::optional<StepTiming> t = timing_of(r.steps);
  if (!t) return nullptr;
  const std::optional<double> mfu = r.flops ? r.flops->mfu(t->tokens_per_second) : std::nullopt;
  return {{"steps", t->steps},
          {"median_seconds", t->median},
          {"p10_seconds", t->p10},
          {"p90_seconds", t->p90},
          {"tokens_per_second", t->tokens_per_second},
          {"wait_share", t->wait_share},
          {"mfu", mfu ? number(*mfu) : Json(nullptr)}};
}

template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : Json(nullptr);
}

Json json_of(const RankRecord& r, int world) {
  return {{"rank", to_int(r.rank)},
          {"host", r.host},
          {"cpu", r.cpu},
          {"cores", r.cores},
          {"memory_bytes", r.memory.value()},
          {"predicted_bytes", json_of(r.predicted_bytes)},
          {"measured_bytes", json_of(r.measured_bytes)},
          {"predicted_operations", json_of(r.predicted_operations, world)},
          {"measured_operations",
           r.measured_operations ? json_of(*r.measured_operations, world) : Json(nullptr)}};
}

// The steps as columns instead of rows: one array per quantity, so that thousands of steps stay small.
Json json_of(const std::vector<StepRecord>& steps) {
  Json json;
  const auto column = [&](const char* key, auto field) {
    json[key] = Json::array();
    for (const StepRecord& step : steps) json[key].push_back(json_of(step.*field));
  };
  for_each_stored_step_field(column);
  if (std::ranges::any_of(steps, [](const StepRecord& s) { return s.validation_loss.has_value(); }))
    column("validation_loss", &StepRecord::validation_loss);
  return json;
}

Json json_of(const FileRecord& f) { return {{"file", f.file}, {"bytes", f.bytes}, {"sum", f.sum}}; }

Json json_of(const TestRecord& t) {
  Json json = json_of(t.text);
  json["rows"] = t.rows;
  json["loss"] = number(t.loss);
  json["perplexity"] = number_or_word(std::exp(t.loss));  // overflows long before the loss does
  return json;
}

// NOLINTNEXTLINE(readability-function-size): a table
Json json_of(const RunRecord& r) {
  Json json = {{"format", 1},
               {"lesson", r.lesson},
               {"commit", r.commit},
               {"command", r.command},
               {"started", r.started},
               {"seconds", number(r.seconds)},
               {"skipped_updates", skipped_updates(r.steps)},
               {"exit_code", r.exit_code ? Json(*r.exit_code) : Json(nullptr)},
               {"message", r.message},
               {"workload_hash", r.workload_hash},
               {"workload", r.workload},
               {"strategy", r.strategy},
               {"device", r.device},
               {"comm", r.comm},
               {"world", r.world},
               {"threads", r.threads},
               {"versions", r.versions},
               {"as_predicted", r.as_predicted()},
               {"timing", timing_json(r)},
               {"flops", json_of(r.flops)}};
  if (r.profile) json["profile"] = json_of(*r.profile);
  if (r.allocator) json["allocator"] = json_of(*r.allocator);
  if (r.graph) json["graph"] = {{"nodes", r.graph->all}, {"events", r.graph->events}};
  if (r.timetable) json["timetable"] = json_of(*r.timetable);
  for (const auto& [what, number] : r.counts) {
    std::string name = what;
    std::ranges::replace(name, ' ', '_');
    json["counts"][name] = number;
  }
  if (r.resumed_from)
    json["resumed_from"] = {{"path", r.resumed_from->path}, {"lesson", r.resumed_from->lesson},
                            {"step", r.resumed_from->step}, {"world", r.resumed_from->world},
                            {"rows", r.resumed_from->rows}, {"tokens", r.resumed_from->tokens}};
  if (r.init) json["init"] = json_of(*r.init);
  if (r.validation) json["validation"] = json_of(*r.validation);
  for (const SaveRecord& save : r.saves)
    json["saves"].push_back(
        {{"step", save.step}, {"blocked", number(save.blocked)}, {"seconds", number(save.seconds)}});
  json["validation_loss"] = json_of(r.validation_loss);
  if (r.test) json["test"] = json_of(*r.test);
  json["ranks"] = Json::array();
  for (const RankRecord& rank : r.ranks) json["ranks"].push_back(json_of(rank, r.world));
  json["steps"] = json_of(r.steps);
  return json;
}

// An array of plain values takes one line, however long. Nested arrays, and objects that are nested or longer
// than a line, take a line per member.
std::string text_of(const Json& json, std::size_t indent) {
  constexpr std::size_t kLine = 100;
  const bool nested =
      std::any_of(json.begin(), json.end(), [](const Json& member) { return member.is_structured(); });
  std::string line = json.is_structured() && nested ? "" : line_of(json);
  if (!nested && (!json.is_object() || line.size() <= kLine)) return line;
  std::string text(1, json.is_object() ? '{' : '[');
  const char* separator = "\n";
  for (const auto& [key, member] : json.items()) {
    text += separator + std::string(indent + 1, ' ');
    if (json.is_object()) text += line_of(key) + ": ";
    text += text_of(member, indent + 1);
    separator = ",\n";
  }
  return text + "\n" + std::string(indent, ' ') + (json.is_object() ? '}' : ']');
}

// The value that `share` of the sorted values do not exceed (the nearest-rank quantile).
double quantile(const std::vector<double>& sorted, double share) {
  const auto at = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(at, 1) - 1];
}

std::tm utc(std::chrono::system_clock::time_point time) {
  return fmt::gmtime(std::chrono::system_clock::to_time_t(time));
}

}  // namespace

std::int64_t skipped_updates(const std::vector<StepRecord>& steps) {
  return std::count_if(steps.begin(), steps.end(), [](const StepRecord& s) { return s.skipped; });
}

double StepRecord::tokens_per_second() const { return share(static_cast<double>(tokens), seconds); }

double StepRecord::wait_share() const { return share(waited_seconds, seconds); }

bool RankRecord::as_predicted() const {
  return measured_bytes && measured_operations && *measured_bytes == predicted_bytes &&
         *measured_operations == predicted_operations;
}

bool RunRecord::as_predicted() const {
  return !ranks.empty() &&
         std::all_of(ranks.begin(), ranks.end(), [](const RankRecord& r) { return r.as_predicted(); });
}

std::optional<StepTiming> timing_of(const std::vector<StepRecord>& steps) {
  const std::int64_t timed = std::ssize(steps) - kWarmupSteps;
  if (timed < kTimedSteps) return std::nullopt;
  std::vector<double> sorted;
  double total = 0, waited = 0, tokens = 0;
  for (auto step = steps.begin() + kWarmupSteps; step != steps.end(); ++step) {
    sorted.push_back(step->seconds);
    total += step->seconds;
    waited += step->waited_seconds;
    tokens += static_cast<double>(step->tokens);
  }
  std::sort(sorted.begin(), sorted.end());
  const double median = quantile(sorted, 0.5);
  return StepTiming{.steps = timed,
                    .median = median,
                    .p10 = quantile(sorted, 0.1),
                    .p90 = quantile(sorted, 0.9),
                    .tokens_per_second = share(tokens / static_cast<double>(timed), median),
                    .wait_share = share(waited, total)};
}

std::string text_of(const RankRecord& rank, int world) { return line_of(json_of(rank, world)); }

std::string line_of(const RunRecord& record) { return line_of(json_of(record)); }

void write_record(FileOps& ops, const Path& dir, const RunRecord& record) {
  atomic_write_file(ops, dir / "record.json", text_of(json_of(record), 0) + "\n");
}

bool write_new_record(FileOps& ops, const Path& dir, const RunRecord& record) {
  return atomic_write_new(ops, dir / "record.json", text_of(json_of(record), 0) + "\n");
}

// Replaces the log of an earlier run, and refuses if the name is a symbolic link.
StepLog::StepLog(FileOps& ops, const Path& dir) {
  const Path path = dir / "steps.jsonl";
  atomic_write_file(ops, path, "");
  file_ = ops.open_write(path);
}

void StepLog::append(const StepRecord& step) { file_->append(as_bytes(line_of(json_of(step)) + "\n")); }

Path new_run_dir(FileOps& ops, const Path& root, const std::string& lesson,
                 std::chrono::system_clock::time_point now) {
  make_dirs(ops, root / lesson);
  const std::string name = fmt::format("{:%Y-%m-%dT%H-%M-%S}", utc(now));
  Path dir = root / lesson / name;
  for (int k = 2; !ops.make_dir(dir); ++k) dir = root / lesson / (name + "-" + std::to_string(k));
  return dir;
}

std::string utc_text(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc(time));
}

}  // namespace sc

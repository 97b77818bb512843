#include "report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/text.h"

namespace sc::choose {
namespace {

using Cells = std::vector<std::vector<std::string>>;

std::string gb(Bytes bytes) { return fmt::format("{:.2f}", 1e-9 * static_cast<double>(bytes.value())); }

// The number with two digits: what a prediction has at most.
double two_digits(double number) { return std::stod(fmt::format("{:.1e}", number)); }

std::string rounded(double tokens) { return human_count(std::llround(two_digits(tokens))); }

std::string in_two_digits(double number) {
  const double shown = two_digits(number);
  return fmt::format("{:.{}f}", shown, std::max(0, 1 - static_cast<int>(std::floor(std::log10(shown)))));
}

std::string name_of(const Row& row) {
  std::string name = "lesson " + row.candidate.plans.folder;
  for (const std::string& setting : row.settings()) name += " " + setting;
  return name;
}

std::string command_of(const Options& options, const Row& row) {
  const std::string& lesson = row.candidate.plans.folder;
  std::string text = fmt::format("lessons/{}/run.sh -n {} --device cuda --workload {}", lesson,
                                 options.machine.gpus, options.workload_file);
  if (lesson == "06_infinity") text += " --disk DIR";
  for (const std::string& setting : options.set) text += " --set " + setting;
  text += fmt::format(" --set batch.micro={}", row.shape.workload.batch.micro);
  for (const std::string& setting : row.settings()) text += " --set " + setting;
  return text;
}

// Where the seconds come from, in words.
std::string rates_text(const Options& options, const Measured& measured) {
  if (options.other_machine)
    return "estimated with an H200's rates, since no --gpu is named (--gpu RTX4090, for example)";
  const std::string tested =
      fmt::format("; {:.0f} % off where it was farthest from a run", 100 * measured.largest_error);
  return fmt::format(
      "{}: shares of the peaks as measured on an H200 (docs/choosing.md){}",
      std::string(options.machine.gpu.name) == "H200" ? "predicted" : "estimated",
      options.machine.gpu.has_run ? tested : "; no lesson has been run on this GPU (docs/gpus.md)");
}

// How far a prediction may be off, as far as runs have told.
std::string how_sure(const Options& options, const Measured& measured) {
  if (options.other_machine || !options.machine.gpu.has_run) return "untested on such GPUs";
  std::int64_t most = 0;
  for (const MeasuredStep& step : measured.steps) most = std::max(most, step.gpus);
  return fmt::format("+-{:.0f} %", 100 * measured.largest_error) +
         (options.machine.gpus > most ? fmt::format(" on up to {} GPUs; untested beyond", most) : "");
}

std::string machine_text(const Options& options, const Measured& measured, const Rates& rates) {
  const Machine& m = options.machine;
  const std::string nodes = m.node() == m.gpus
                                ? ""
                                : fmt::format(", in nodes of {} with {:g} GB/s from a GPU to other nodes",
                                              m.node(), *m.node_link / 1e9);
  return fmt::format(
      "{} x {}{} ({}), {} each{}{}{}; {} rows of {} tokens a step\n"
      "rates taken: {:.0f} TFLOP/s in products, {:.0f} GB/s between GPUs, {:.0f} GB/s to the host, AdamW "
      "{:.1f} G parameters a second on the host (as a server's 16 cores)\n"
      "seconds are {}\n",
      m.gpus, options.other_machine ? "GPU with the rates of " : "", m.gpu.name, m.gpu.source,
      human_bytes(m.memory), nodes, m.host_memory ? ", host " + human_bytes(*m.host_memory) : "",
      m.disk ? fmt::format(", disk {:g} GB/s", *m.disk / 1e9) : "", options.workload.batch.global,
      options.workload.batch.sequence, rates.flops / 1e12, rates.link / 1e9, rates.host_link / 1e9,
      rates.adam / 1e9, rates_text(options, measured));
}

// The lesson's settings in a timed step, and activations if they are computed again.
std::vector<std::string> settings_of(const MeasuredStep& step) {
  std::vector<std::string> all = step.settings;
  if (step.workload.activations != Activations::keep) all.push_back(activations_setting(step.workload));
  return all;
}

// Advice about what is faster but trains otherwise; empty if there is none.
std::string late_text(const std::vector<Row>& rows, const Row& chosen) {
  const Row* late = nullptr;
  for (const Row& row : rows)
    if (row.fits && row.candidate.late && (late == nullptr || row.seconds < late->seconds)) late = &row;
  if (late == nullptr || late->seconds > (1 - kAsGood) * chosen.seconds) return "";
  return fmt::format(
      "With {} {} tokens a second, but its gradients are of older weights: compare the losses first.\n",
      name_of(*late), rounded(late->tokens_per_second()));
}

// Why `chosen`, which is best(), is advised.
std::string why(const Options& options, const std::vector<Row>& rows, const Row& chosen) {
  const bool nodes = options.machine.node() < options.machine.gpus;
  const auto fit =
      std::ranges::count_if(rows, [](const Row& row) { return row.fits && !row.candidate.late; });
  return fmt::format("{} within {:.0f} % of the most among the {} that fit and train as one device does",
                     !nodes ? "the first"
                     : chosen.candidate.host
                         ? "it sends least to other nodes of those"
                         : "it leaves states on the GPUs, and sends least to other nodes, of those",
                     100 * kAsGood, fit);
}

std::string advice(const Options& options, const Measured& measured, const std::vector<Row>& rows) {
  const Row* chosen = best(rows);
  if (chosen == nullptr) return "";
  return fmt::format("advice: {}, {} tokens a second ({}): {}\n  {}\n", name_of(*chosen),
                     rounded(chosen->tokens_per_second()), how_sure(options, measured),
                     why(options, rows, *chosen), command_of(options, *chosen)) +
         late_text(rows, *chosen);
}

nlohmann::json json_of(const Options& options, const Row& row) {
  nlohmann::json json = {{"lesson", row.candidate.plans.folder},
                         {"name", row.candidate.plans.name},
                         {"settings", row.settings()},
                         {"late", row.candidate.late},
                         {"fits", row.fits},
                         {"reason", row.reason}};
  if (row.needs.device.value() > 0) {
    json["micro"] = row.shape.workload.batch.micro;
    json["device"] = row.needs.device.value();
    json["host"] = row.needs.host.value();
    json["disk"] = row.needs.disk.value();
  }
  if (row.fits) {
    json["sent"] = row.sent.value(), json["to_nodes"] = row.to_nodes.value();
    json["copied"] = row.copied.value();
    json["on_disk"] = row.on_disk.value(), json["seconds"] = row.seconds;
    json["tokens_per_second"] = row.tokens_per_second(), json["command"] = command_of(options, row);
  }
  return json;
}

}  // namespace

namespace {

/// A column of the table; shown only if the machine has what it is about.
struct Column {
  const char* title;
  bool shown;
  std::function<std::string(const Row&)> cell;
};

std::string table_of(const Machine& machine, const std::vector<Row>& rows) {
  const bool host = machine.host_memory.has_value(), disk = machine.disk.has_value(),
             nodes = machine.node() < machine.gpus;
  const std::vector<Column> columns = {
      {"lesson and settings", true,
       [](const Row& row) { return name_of(row) + (row.candidate.late ? " (late)" : ""); }},
      {"batch.micro", true, [](const Row& row) { return std::to_string(row.shape.workload.batch.micro); }},
      {"GPU GB", true, [](const Row& row) { return gb(row.needs.device); }},
      {"host GB", host, [](const Row& row) { return gb(row.needs.host); }},
      {"disk GB", disk, [](const Row& row) { return gb(row.needs.disk); }},
      {"sent GB", true, [](const Row& row) { return gb(row.sent); }},
      {"to nodes GB", nodes, [](const Row& row) { return gb(row.to_nodes); }},
      {"copied GB", host, [](const Row& row) { return gb(row.copied); }},
      {"over disk GB", disk, [](const Row& row) { return gb(row.on_disk); }},
      {"s/step", true, [](const Row& row) { return in_two_digits(row.seconds); }},
      {"tokens/s", true, [](const Row& row) { return rounded(row.tokens_per_second()); }}};
  Cells cells(1);
  for (const Column& column : columns)
    if (column.shown) cells.front().emplace_back(column.title);
  for (const Row& row : rows) {
    if (!row.fits) continue;
    cells.emplace_back();
    for (const Column& column : columns)
      if (column.shown) cells.back().push_back(column.cell(row));
  }
  if (cells.size() == 1) return "";
  const auto any_has = [&](const char* setting) {
    return std::ranges::any_of(rows,
                               [&](const Row& row) { return row.fits && has(row.candidate.plans, setting); });
  };
  return table(cells) +
         "GPU: of the one that holds the most, 1 GB for the driver and libraries included; sent" +
         (nodes ? ", to other nodes" : "") + (host ? ", copied" : "") + (disk ? ", over disk" : "") +
         ": by a GPU per step" + (host ? "; host, disk: of all ranks\n" : "\n") +
         (any_has("warmup=1") ? "warmup=1: one more micro-batch's activations on all stages but the last\n"
                              : "") +
         (any_has("update=early")
              ? "update=early: of steps that are not clipped; a clipped one takes longer\n"
              : "") +
         (std::ranges::any_of(rows, [](const Row& row) { return row.fits && row.candidate.late; })
              ? "late: gradients of older weights, so other losses\n"
              : "");
}

constexpr std::size_t kNearest = 10;

std::string nearest_text(const std::vector<Row>& rows, const Rates& rates) {
  std::string text;
  for (const Row& row : nearest(rows, kNearest))
    text += fmt::format("  {:>9} tokens/s  {} batch.micro={}{}: {}\n", rounded(row.tokens_per_second()),
                        name_of(row), row.shape.workload.batch.micro, row.candidate.late ? " (late)" : "",
                        waits_for(row, rates));
  return text.empty() ? "" : "\nquickest, and what a step waits for most:\n" + text;
}

}  // namespace

std::string report(const Options& options, const Measured& measured, const std::vector<Row>& rows) {
  const Rates rates = rates_of(options.machine, measured, options.workload.precision.dtype);
  const std::vector<Row> kinds = best_of_kinds(rows);
  std::string not_fitting;
  std::set<std::string> said;  // what a whole lesson lacks
  for (const Row& row : kinds)
    if (!row.fits &&
        (row.needs.device.value() > 0 || said.insert(row.candidate.plans.folder + row.reason).second))
      not_fitting += fmt::format("  {}: {}\n", name_of(row), row.reason);
  return machine_text(options, measured, rates) + "\n" + table_of(options.machine, kinds) +
         nearest_text(rows, rates) + (not_fitting.empty() ? "" : "\ndoes not fit:\n" + not_fitting) + "\n" +
         advice(options, measured, rows);
}

std::string report_json(const Options& options, const Measured& measured, const std::vector<Row>& rows) {
  const Rates rates = rates_of(options.machine, measured, options.workload.precision.dtype);
  nlohmann::json kinds = nlohmann::json::array(), quickest = nlohmann::json::array();
  for (const Row& row : best_of_kinds(rows)) kinds.push_back(json_of(options, row));
  for (const Row& row : nearest(rows, kNearest)) {
    quickest.push_back(json_of(options, row));
    quickest.back()["waits_for"] = waits_for(row, rates);
  }
  const Row* chosen = best(rows);
  const nlohmann::json advised = chosen == nullptr ? nlohmann::json() : nlohmann::json(name_of(*chosen));
  return nlohmann::json({{"machine", machine_text(options, measured, rates)},
                         {"rows", kinds},
                         {"quickest", quickest},
                         {"advice", advised},
                         {"why", chosen == nullptr ? "" : why(options, rows, *chosen)},
                         {"sure", how_sure(options, measured)}})
             .dump(1) +
         "\n";
}

namespace {

Checked checked(const MeasuredStep& step, const Measured& measured) {
  Machine machine{.gpu = gpu_named(step.gpu), .gpus = step.gpus};
  if (step.disk > 0) machine.disk = step.disk;
  const Candidate candidate = candidate_of(step.lesson, step.settings);
  const RunShape shape = shape_on(candidate.plans, step.gpus, step.workload);
  return {step, candidate.seconds(shape, rates_of(machine, measured, step.workload.precision.dtype))};
}

}  // namespace

std::vector<Checked> check(const Measured& measured) {
  std::vector<Checked> all;
  for (std::size_t i = 0; i < measured.steps.size(); ++i) {
    Measured others = measured;
    others.steps.erase(others.steps.begin() + static_cast<std::ptrdiff_t>(i));
    all.push_back(checked(measured.steps[i], others));
  }
  return all;
}

std::vector<Checked> predict_ahead(const Measured& measured) {
  std::vector<Checked> all;
  for (const MeasuredStep& step : measured.ahead) all.push_back(checked(step, measured));
  return all;
}

namespace {

std::vector<std::string> cells_of(const Checked& row) {
  return {
      row.step.record,
      row.step.run,
      fmt::format("lesson {} {}", row.step.lesson, fmt::join(settings_of(row.step), " ")),
      fmt::format("{} {}", row.step.gpus, row.step.gpu),
      row.step.seconds > 0 ? fmt::format("{:.1f}", 1e3 * row.step.seconds) : "",
      row.step.seconds > 0 ? fmt::format("{:.1f}", 1e3 * row.predicted) : in_two_digits(1e3 * row.predicted),
      row.step.seconds > 0 ? fmt::format("{:+.1f} %", 100 * row.error()) : ""};
}

nlohmann::json checked_json(const Checked& row) {
  nlohmann::json json = {{"record", row.step.record}, {"run", row.step.run},
                         {"lesson", row.step.lesson}, {"settings", settings_of(row.step)},
                         {"gpu", row.step.gpu},       {"gpus", row.step.gpus},
                         {"predicted", row.predicted}};
  if (row.step.seconds > 0) json["seconds"] = row.step.seconds, json["error"] = row.error();
  return json;
}

}  // namespace

std::string check_report(const std::vector<Checked>& checked, const std::vector<Checked>& ahead) {
  Cells cells = {{"record", "run", "lesson and settings", "GPUs", "measured ms", "predicted ms", "error"}};
  for (const std::vector<Checked>* rows : {&checked, &ahead})
    for (const Checked& row : *rows) cells.push_back(cells_of(row));
  return table(cells);
}

std::string check_json(const std::vector<Checked>& checked, const std::vector<Checked>& ahead,
                       const Measured& measured) {
  const Machine there{.gpu = gpu_named(measured.gpu)};
  const Rates rates = rates_of(there, measured, DType::bf16), f32 = rates_of(there, measured, DType::f32);
  nlohmann::json rows = nlohmann::json::array(), to_come = nlohmann::json::array();
  for (const Checked& row : checked) rows.push_back(checked_json(row));
  for (const Checked& row : ahead) to_come.push_back(checked_json(row));
  const nlohmann::json json = {{"share_of_peak", rates.flops / gpu_named(measured.gpu).flops},
                               {"start_tokens", rates.start_tokens},
                               {"part_start_tokens", rates.part_start_tokens},
                               {"taken_from_products", rates.taken},
                               {"share_of_peak_f32", f32.flops / gpu_named(measured.gpu).flops_f32},
                               {"eager", rates.eager},
                               {"sum_microseconds", 1e6 * rates.pair.sum.call_seconds},
                               {"gather_microseconds", 1e6 * rates.pair.gather.call_seconds},
                               {"call_microseconds", 1e6 * rates.call_seconds},
                               {"adam_billions_per_second", rates.adam / 1e9},
                               {"adam_early_billions_per_second", rates.adam_early / 1e9},
                               {"eager_host", rates.eager_host},
                               {"rows", rows},
                               {"ahead", to_come}};
  return json.dump(1) + "\n";
}

}  // namespace sc::choose

#include "measured.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "candidates.h"
#include "common/base/check.h"
#include "common/config/resolve.h"
#include "common/input/json_parse.h"
#include "predict.h"

namespace sc::choose {
namespace {

constexpr JsonLimits kLimits{.bytes = Measured::kMostBytes};
constexpr const char* kFix = "python3 tests/benchmarks/choosing.py";

MeasuredStep step_of(const nlohmann::json& row, const std::string& usual_gpu) {
  MeasuredStep step;
  row.at("record").get_to(step.record), row.at("run").get_to(step.run), row.at("lesson").get_to(step.lesson);
  row.at("settings").get_to(step.settings), row.at("gpus").get_to(step.gpus);
  step.seconds = row.value("seconds", 0.0), step.disk = row.value("disk", 0.0);
  step.gpu = row.value("gpu", usual_gpu);
  ConfigSources sources;
  row.at("workload").get_to(sources.workload_file);
  for (const auto& [key, value] : row.at("set").items())
    sources.settings.push_back({key, value.get<std::string>(), step.record});
  step.workload = resolve(sources, {}).workload;
  return step;
}

// How products take lesson 00's time, fitted to its steps in the dtype of the tensor cores whose batch is
// whole.
struct Fit {
  double share = 0, start_tokens = 0;
};

// How long the products of a step on one GPU took, relative to the time that they would take at `peak`.
double over_peak(const MeasuredStep& step, const Rates& peak) {
  const Workload& w = step.workload;
  const PassTimes pass = pass_times(w, w.model.layers, true, peak);
  const auto parameters = static_cast<double>(ParamLayout(w.model, WorldSize{1}).arena_size().value());
  return (step.seconds - update_seconds(parameters, peak)) / (pass.forward + pass.backward);
}

Fit fit_products(const Measured& measured, double memory) {
  const Gpu& gpu = gpu_named(measured.gpu);
  const Rates peak{.flops = gpu.flops, .memory = memory};
  double n = 0, x1 = 0, x2 = 0, y1 = 0, xy = 0;
  for (const MeasuredStep& step : measured.steps) {
    const Workload& w = step.workload;
    if (step.lesson != "00_one_device" || w.precision.dtype != DType::bf16 ||
        w.batch.micro != w.batch.global || step.gpu != measured.gpu)
      continue;
    const double x = 1 / static_cast<double>(w.batch.micro * w.batch.sequence), y = over_peak(step, peak);
    n += 1, x1 += x, x2 += x * x, y1 += y, xy += x * y;
  }
  const double slope = (n * xy - x1 * y1) / (n * x2 - x1 * x1), at_0 = (y1 - slope * x1) / n;
  return {1 / at_0, slope / at_0};
}

}  // namespace

Measured Measured::parse(const std::string& text, const std::string& path) {
  Measured measured;
  try {
    const nlohmann::json file = parse_json(text, kLimits);
    file.at("gpu").get_to(measured.gpu);
    file.at("memory_bytes_per_second").get_to(measured.memory);
    file.at("link_bytes_per_second").get_to(measured.link);
    file.at("call_seconds").get_to(measured.call_seconds);
    file.at("taken_from_products").get_to(measured.taken);
    for (const auto& [ranks, copies] : {std::pair("2", &measured.pair), std::pair("4", &measured.group)}) {
      for (const auto& [name, rate] :
           {std::pair("sum", &copies->sum), std::pair("gather", &copies->gather)}) {
        const nlohmann::json& said = file.at("by_copy").at(ranks).at(name);
        said.at("call_seconds").get_to(rate->call_seconds);
        said.at("bytes_per_second").get_to(rate->bytes);
      }
    }
    file.at("host_link_bytes_per_second").get_to(measured.host_link);
    file.at("adam_parameters_per_second").get_to(measured.adam);
    file.at("adam_early_parameters_per_second").get_to(measured.adam_early);
    file.at("largest_error").get_to(measured.largest_error);
    for (const auto& [name, steps] :
         {std::pair("steps", &measured.steps), std::pair("ahead", &measured.ahead)})
      for (const nlohmann::json& row : file.at(name)) steps->push_back(step_of(row, measured.gpu));
  } catch (const nlohmann::json::exception& error) {
    throw InputError(ExitCode::data, path, json_words(error.what()), kFix);
  } catch (const JsonError& error) {
    throw InputError(ExitCode::data, path, error.what(), kFix);
  }
  return measured;
}

namespace {

// The rates of copies on a machine: its link's if it is given, otherwise as large a share as was measured. A
// call takes as long as it took there.
CopyRates rates_on(const Machine& machine, const Gpu& there, CopyRates copies) {
  for (MessageRate* rate : {&copies.sum, &copies.gather})
    rate->bytes = machine.link.value_or(machine.gpu.link * rate->bytes / there.link);
  return copies;
}

// Finds part_start_tokens from lesson 10's steps on two GPUs, between which messages were timed. A step's
// seconds grow linearly with it, so two predictions show how.
double fit_parts(const Measured& measured, const Machine& there, Rates rates) {
  double xx = 0, xy = 0;  // of (predicted - seconds) / seconds
  for (const MeasuredStep& step : measured.steps) {
    if (step.lesson != "10_tensor_parallel" || step.gpus != 2 || step.gpu != there.gpu.name) continue;
    const Candidate candidate = candidate_of(step.lesson, step.settings);
    const RunShape shape = shape_on(candidate.plans, step.gpus, step.workload);
    const auto with = [&](double tokens) {
      rates.part_start_tokens = tokens;
      return candidate.seconds(shape, rates) / step.seconds;
    };
    const double at_0 = with(0), slope = with(1) - at_0;
    xx += slope * slope, xy += slope * (1 - at_0);
  }
  return xx > 0 ? xy / xx : rates.start_tokens;
}

// The share of its peak that a GPU reaches in fp32, for which fewer steps were timed.
double fit_f32(const Measured& measured, const Fit& products) {
  const Gpu& gpu = gpu_named(measured.gpu);
  const Rates peak{.flops = gpu.flops_f32, .start_tokens = products.start_tokens, .memory = measured.memory};
  double shares = 0, n = 0;
  for (const MeasuredStep& step : measured.steps) {
    const Workload& w = step.workload;
    if (w.precision.dtype != DType::f32 || step.gpus != 1 || step.gpu != measured.gpu) continue;
    shares += 1 / over_peak(step, peak), n += 1;
  }
  return n > 0 ? shares / n : products.share;
}

Rates without_parts(const Machine& machine, const Measured& measured, DType dtype) {
  const Gpu& there = gpu_named(measured.gpu);
  const Fit fit = fit_products(measured, measured.memory);
  return {.flops = dtype == DType::f32 ? machine.gpu.flops_f32 * fit_f32(measured, fit)
                                       : machine.gpu.flops * fit.share,
          .start_tokens = fit.start_tokens,
          .memory = machine.gpu.memory_rate * measured.memory / there.memory_rate,
          .link = machine.link.value_or(machine.gpu.link * measured.link / there.link),
          .host_link = machine.gpu.host_link * measured.host_link / there.host_link,
          .call_seconds = measured.call_seconds,
          .taken = measured.taken,
          .pair = rates_on(machine, there, measured.pair),
          .group = rates_on(machine, there, measured.group),
          .part_start_tokens = fit.start_tokens,
          .adam = measured.adam,
          .adam_early = measured.adam_early,
          .disk = machine.disk.value_or(0),
          .node = machine.gpus_per_node.value_or(INT64_MAX),
          .node_link = machine.node_link.value_or(0)};
}

// How many times as long a lesson's steps take as they would if a graph replayed them, as a mean over those
// that wait for nothing else.
double fit_eager(const Measured& measured, const std::string& lesson) {
  double times = 0, n = 0;
  for (const MeasuredStep& step : measured.steps) {
    if (step.lesson != lesson) continue;
    const Candidate candidate = candidate_of(step.lesson, step.settings);
    if (candidate.host && !candidate.late) continue;  // it waits for AdamW
    const RunShape shape = shape_on(candidate.plans, step.gpus, step.workload);
    const Rates rates = without_parts({.gpu = gpu_named(step.gpu)}, measured, step.workload.precision.dtype);
    times += step.seconds / candidate.seconds(shape, rates), n += 1;
  }
  return n > 0 ? times / n : 1;
}

}  // namespace

Rates rates_of(const Machine& machine, const Measured& measured, DType dtype) {
  Rates rates = without_parts(machine, measured, dtype);
  const Machine there{.gpu = gpu_named(measured.gpu)};
  rates.part_start_tokens = fit_parts(measured, there, without_parts(there, measured, DType::bf16));
  rates.eager = fit_eager(measured, "08_weight_versions");
  rates.eager_host = fit_eager(measured, "05_offload");
  return rates;
}

}  // namespace sc::choose

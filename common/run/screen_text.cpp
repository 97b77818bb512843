#include "common/run/screen_text.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/config/workload_table.h"
#include "common/input/printable.h"
#include "common/model/param_layout.h"

namespace sc::detail {
namespace {

// What messages call the lesson: "data parallel".
std::string title_of(const LessonInfo& info) {
  const auto plans = std::ranges::find(info.strategies, info.name, &StrategyPlans::folder);
  if (plans != info.strategies.end()) return plans->name;
  std::string title = info.name.substr(std::min<std::size_t>(3, info.name.size()));
  std::ranges::replace(title, '_', ' ');
  return title;
}

// A word of a command, in quotes if a shell would otherwise not read it as one word.
std::string word(const std::string& text) {
  const bool plain =
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%") ==
      std::string::npos;
  if (plain && !text.empty()) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// The flags that define the workload, without the lesson's own settings.
std::string workload_flags(const TrainJob& job) {
  const ConfigSources& sources = job.line.sources;
  std::string flags;
  if (!sources.workload_file.ends_with(job.lesson.info.workload))
    flags += " --workload " + word(sources.workload_file);
  Workload workload;
  const FieldSet fields = workload_fields().bind(workload);
  for (const Setting& setting : sources.settings)
    if (fields.find(setting.key) != nullptr) flags += " --set " + word(setting.key + "=" + setting.value);
  if (!job.line.init.empty()) flags += " --init " + word(job.line.init);
  return flags;
}

}  // namespace

std::string format_header(const AnyLesson& lesson, const RunShape& shape, const BatchPlan& batch) {
  const GptConfig& model = shape.workload.model;
  const auto parameters = static_cast<double>(ParamLayout(model, shape.mesh.world()).parameters().value());
  const auto counted = [](std::int64_t count, const std::string& what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  std::string text =
      fmt::format("Lesson {}, {}, on {}: {}\n", lesson.info.name.substr(0, 2), title_of(lesson.info),
                  counted(to_int(shape.mesh.world()), "rank"), lesson.info.does);
  text +=
      fmt::format("  model {:.2f} M parameters, {} blocks      {} rows x {} tokens = {} x {} micro-batch{}",
                  parameters / 1e6, model.layers, batch.global, shape.workload.batch.sequence, batch.micro,
                  batch.accumulation, batch.accumulation == 1 ? "" : "es");
  const bool shared = shape.mesh.of_a_replica() > 1;  // a replica is several ranks
  for (const AxisName& of : kAxes)
    if (of.axis != Axis::data && shape.mesh.size(of.axis) > 1)
      text += (of.axis == Axis::stages ? " through " : " on ") +
              counted(shape.mesh.size(of.axis), std::string(of.one));
  if (!shared || batch.data_parallel > 1)
    text += " x " + counted(batch.data_parallel, shared ? "replica" : "rank");
  return text + "\n";
}

std::string format_next(const TrainJob& job, const std::string& record) {
  const NextLesson& next = job.lesson.info.next;
  if (next.folder.empty()) return "";
  std::string command = fmt::format("lessons/{}/run.sh", next.folder);
  if (next.compares) {
    if (const std::int64_t ranks = to_int(job.launch.world); ranks > 1)
      command += fmt::format(" -n {}", ranks);
    command += workload_flags(job);
    for (const Setting& setting : job.line.sources.settings)
      if (std::ranges::count(next.with, setting.key + "=" + setting.value) > 0)
        command += " --set " + word(setting.key + "=" + setting.value);
    command += " --compare " + word(record);
  }
  return printable(fmt::format("{}: {}", next.why, command));
}

}  // namespace sc::detail

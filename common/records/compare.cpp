#include "common/records/compare.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/other_names.h"
#include "common/input/printable.h"

namespace sc {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string ratio(double now, double before) {
  if (!(before > 0)) return now > 0 ? "new" : "";
  return fmt::format("x {:.3f}", now / before);
}

std::string differing_keys(const std::map<std::string, std::string>& here,
                           const std::map<std::string, std::string>& there) {
  std::map<std::string, std::pair<std::optional<std::string>, std::optional<std::string>>> all;
  for (const auto& [key, value] : here) all[key].first = value;
  for (const auto& [key, value] : there) all[key].second = value;
  std::string text;
  for (const auto& [key, values] : all)
    if (values.first != values.second)
      text += fmt::format("{}{} is {} here and {} there", text.empty() ? "" : "; ", key,
                          values.first.value_or("nothing"), values.second.value_or("nothing"));
  return text;
}

// The bytes that a rank measured, or predicted if the run was too short to be checked.
const RankBytes& bytes_of(const RankRecord& rank) {
  return rank.measured_bytes ? *rank.measured_bytes : rank.predicted_bytes;
}
const CommPlan& operations_of(const RankRecord& rank) {
  return rank.measured_operations ? *rank.measured_operations : rank.predicted_operations;
}
std::string column(const RunRecord& r) {
  return fmt::format("{} -n {}{}", r.lesson, r.world, r.ranks.at(0).measured_bytes ? "" : " (predicted)");
}

std::string bytes_table(const RunRecord& run, const RunRecord& other) {
  const RankBytes &now = bytes_of(run.ranks.at(0)), &before = bytes_of(other.ranks.at(0));
  Rows rows = {{"peak bytes of rank 0", column(other), column(run)}};
  const auto add = [&](const std::string& what, Bytes then, Bytes here) {
    if (then.value() == 0 && here.value() == 0) return;
    rows.push_back({what, human_count(then.value()), human_count(here.value()),
                    ratio(static_cast<double>(here.value()), static_cast<double>(then.value()))});
  };
  for_each_place([&](Place place) {
    for_each_purpose([&](Purpose purpose) {
      add(at_place(in_words(purpose), place), before.of.at(purpose, place), now.of.at(purpose, place));
    });
    if (place == Place::device) add("total", before.total, now.total);
  });
  return table(rows);
}

struct Sent {
  std::int64_t count = 0;
  Bytes bytes;
};
Sent sent(const RunRecord& r, CommKind kind) {
  Sent sum;
  for (const auto& [op, times] : operations_of(r.ranks.at(0)).count) {
    if (op.kind != kind) continue;
    sum.count += times;
    sum.bytes += moved_bytes({{{op, times}}}, way_of(kind), Rank{0});
  }
  return sum;
}

std::string operations_table(const RunRecord& run, const RunRecord& other) {
  Rows rows = {{"operations of one step", "count", "rank 0 sends", "count", "rank 0 sends"}};
  Sent then, here;
  for (int k = 0; k < kCommKinds; ++k) {
    const auto kind = static_cast<CommKind>(k);
    const Sent a = sent(other, kind), b = sent(run, kind);
    then.count += a.count, then.bytes += a.bytes, here.count += b.count, here.bytes += b.bytes;
    if (a.count + b.count > 0)
      rows.push_back({std::string(name_of(kind)), human_count(a.count), human_count(a.bytes.value()),
                      human_count(b.count), human_count(b.bytes.value())});
  }
  rows.push_back({"total", human_count(then.count), human_count(then.bytes.value()), human_count(here.count),
                  human_count(here.bytes.value()),
                  ratio(static_cast<double>(here.bytes.value()), static_cast<double>(then.bytes.value()))});
  return table(rows);
}

std::string time_table(const RunRecord& run, const RunRecord& other) {
  const std::optional<StepTiming> now = timing_of(run.steps), before = timing_of(other.steps);
  if (!now || !before) {
    return fmt::format("  times are compared from {} steps on; {} has {}, {} has {}\n",
                       kWarmupSteps + kTimedSteps, other.lesson, other.steps.size(), run.lesson,
                       run.steps.size());
  }
  Rows rows = {{"steps after the warm-up", column(other), column(run)}};
  rows.push_back({"median step", fmt::format("{:.2f} ms", before->median * 1e3),
                  fmt::format("{:.2f} ms", now->median * 1e3), ratio(now->median, before->median)});
  const auto spread = [](const StepTiming& t) {
    return fmt::format("{:.2f} to {:.2f}", t.p10 * 1e3, t.p90 * 1e3);
  };
  rows.push_back({"p10 to p90", spread(*before), spread(*now)});
  rows.push_back({"tokens a second", fmt::format("{:.0f}", before->tokens_per_second),
                  fmt::format("{:.0f}", now->tokens_per_second),
                  ratio(now->tokens_per_second, before->tokens_per_second)});
  rows.push_back({"waiting for communication", fmt::format("{:.1f} %", 100 * before->wait_share),
                  fmt::format("{:.1f} %", 100 * now->wait_share)});
  // A difference no larger than that between one run's own steps means nothing.
  const bool seen = now->p10 > before->p90 || before->p10 > now->p90;
  return table(rows) +
         (seen ? "" : "  no difference can be seen: the two runs' steps overlap, p10 to p90\n") +
         "  times of two runs: docs/measuring.md says what else is in their ratio\n";
}

using MaybeFile = std::optional<FileRecord>;

bool same_file(const MaybeFile& a, const MaybeFile& b) {
  return a && b ? a->bytes == b->bytes && a->sum == b->sum : !a && !b;
}

std::string both_files(const char* flag, const MaybeFile& there, const MaybeFile& here) {
  const auto name = [](const MaybeFile& file) {
    return file ? fmt::format("{} (sum {})", file->file, file->sum) : "none";
  };
  return fmt::format("{} {} there, {} here", flag, name(there), name(here));
}

std::string loss_table(const RunRecord& run, const RunRecord& other) {
  Rows rows = {{"loss, nats a token", column(other), column(run), "difference"}};
  const auto add = [&](const std::string& what, double then, double here) {
    rows.push_back({what, fmt::format("{:.6f}", then), fmt::format("{:.6f}", here),
                    fmt::format("{:.2e}", std::abs(here - then))});
  };
  const std::size_t steps = std::min(run.steps.size(), other.steps.size());
  std::size_t largest = 0;
  const auto difference = [&](std::size_t i) { return std::abs(run.steps[i].loss - other.steps[i].loss); };
  // A NaN counts as the largest difference; if no step differs, the first one is shown.
  for (std::size_t i = 1; i < steps && !std::isnan(difference(largest)); ++i)
    if (!(difference(i) <= difference(largest))) largest = i;
  if (steps > 0) {
    add(fmt::format("step {}, where it is largest", run.steps[largest].step), other.steps[largest].loss,
        run.steps[largest].loss);
    add(fmt::format("step {}", run.steps[steps - 1].step), other.steps[steps - 1].loss,
        run.steps[steps - 1].loss);
  }
  if (!run.validation_loss || !other.validation_loss) return table(rows);
  if (!same_file(run.validation, other.validation))
    return table(rows) + "  validation losses are of other texts: " +
           both_files("--validation", other.validation, run.validation) + "\n";
  add("validation", *other.validation_loss, *run.validation_loss);
  return table(rows);
}

}  // namespace

OtherRun read_other_run(FileOps& ops, const std::string& path,
                        const std::map<std::string, std::string>& workload) {
  OtherRun other{path, read_record(ops, path)};
  const std::string where = "--compare " + path;
  if (other.record.ranks.empty() || other.record.exit_code != 0) {
    throw InputError(ExitCode::data, where, "that run came to no end", "the record of a run that ended well");
  }
  const std::string keys = differing_keys(workload, in_todays_keys(other.record.workload));
  if (!keys.empty()) {
    throw InputError(ExitCode::usage, where, "it did other work: " + keys,
                     "runs are compared that train the same; --set the keys, or use that run's --workload");
  }
  return other;
}

std::string format_comparison(const RunRecord& run, const OtherRun& other) {
  std::string text = "compared with " + other.path;
  if (!same_file(run.init, other.record.init))
    text += "; " + both_files("--init", other.record.init, run.init);
  text += "\n";
  text +=
      bytes_table(run, other.record) + operations_table(run, other.record) + time_table(run, other.record);
  return printable(text + loss_table(run, other.record));
}

}  // namespace sc

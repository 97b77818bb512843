#include <algorithm>
#include <utility>

#include "pipedream/check.h"
#include "pipedream/command/compare.h"
#include "pipedream/command/flags.h"
#include "pipedream/command/text.h"
#include "pipedream/error.h"
#include "pipedream/formulas.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

Comparison compare(const GenerateOptions& options, const Costs& costs) {
  const Schedule schedule = generate(options);
  const Timeline timeline = simulate(schedule, costs);
  Comparison row;
  row.name = schedule.name;
  if (options.family == Family::pipedream)
    row.name += std::string(", ") + std::string(name_of(options.versions));
  if (options.chunks > 1) row.name += ", " + std::to_string(options.chunks) + " chunks";
  row.stages = options.stages;
  row.microbatches = schedule.microbatches;
  row.makespan = timeline.makespan;
  row.utilization = timeline.utilization;
  for (const StageUse& use : timeline.stages) {
    row.activation_bytes = std::max(row.activation_bytes, use.activation_bytes);
    row.weight_bytes = std::max(row.weight_bytes, use.weight_bytes);
    // An empty optional is less than any number.
    row.steady_idle = std::max(row.steady_idle, use.steady_idle);
  }
  for (const StageCounts& counts : count(schedule)) {
    // Activations are counted in microbatches: one chunk of a stage counts as a fraction.
    row.activations = std::max(row.activations, static_cast<double>(counts.activations) / options.chunks);
    row.versions = std::max(row.versions, counts.versions);
    row.messages += counts.sends;
    row.steps = counts.steps;
  }
  return row;
}

namespace {

constexpr VersionRule kPipeDreamRules[] = {VersionRule::none, VersionRule::stash, VersionRule::vertical_sync};

void add_pipedream(std::vector<Comparison>& rows, GenerateOptions options, const Costs& costs) {
  for (const VersionRule rule : kPipeDreamRules) {
    options.versions = rule;
    rows.push_back(compare(options, costs));
  }
}

std::vector<Comparison> all_rows(const Flags& flags, const Costs& costs) {
  std::vector<Comparison> rows;
  for (const Family family : kFamilies) {
    GenerateOptions options = flags.shape(family);
    options.batches = flags.integer("batches");  // the same microbatches for all
    const bool chunked = family == Family::interleaved || family == Family::zb_h1;
    if (!chunked) options.chunks = 1;
    const int warmup = std::exchange(options.warmup, 0);
    if (family == Family::two_bw && options.microbatches < options.stages) continue;
    if (family == Family::pipedream) {
      add_pipedream(rows, options, costs);
      continue;
    }
    rows.push_back(compare(options, costs));
    if (family != Family::one_f_one_b || warmup == 0) continue;
    options.warmup = warmup;
    rows.push_back(compare(options, costs));
  }
  return rows;
}

std::string table(const std::vector<Comparison>& rows) {
  std::vector<std::vector<std::string>> text = {{"schedule", "makespan", "utilisation", "idle", "steady idle",
                                                 "activations", "versions", "messages", "steps"}};
  for (const Comparison& r : rows) {
    text.push_back({r.name, number_text(r.makespan), percent_text(r.utilization),
                    percent_text(1 - r.utilization), share_text(r.steady_idle), number_text(r.activations, 2),
                    std::to_string(r.versions), std::to_string(r.messages), std::to_string(r.steps)});
  }
  return table_text(text);
}

std::string json(const std::vector<Comparison>& rows) {
  std::string text = "{\n  \"simulated\": true,\n  \"rows\": [\n";
  for (const Comparison& r : rows) {
    text += "    {\"schedule\": \"" + r.name + "\", \"stages\": " + std::to_string(r.stages) +
            ", \"microbatches\": " + std::to_string(r.microbatches) +
            ", \"makespan\": " + number_text(r.makespan, 6) +
            ", \"utilization\": " + number_text(r.utilization, 6) +
            ", \"steady_idle\": " + (r.steady_idle ? number_text(*r.steady_idle, 6) : "null") +
            ", \"activations\": " + number_text(r.activations, 6) +
            ", \"versions\": " + std::to_string(r.versions) +
            ", \"messages\": " + std::to_string(r.messages) + ", \"steps\": " + std::to_string(r.steps) +
            "}" + (&r == &rows.back() ? "\n" : ",\n");
  }
  return text + "  ]\n}\n";
}

// How many times as much ZeRO-3 sends as the pipeline, between `least` and `most`; inverted if both are below
// one.
std::string times_as_much(double least, double most) {
  const bool zero3 = most >= 1;
  const double low = zero3 ? least : 1 / most, high = zero3 ? most : 1 / least;
  return (zero3 ? "ZeRO-3 sends " : "the pipeline sends ") + number_text(low, 1) + " to " +
         number_text(high, 1) + " times as much\n";
}

// The bytes that one rank sends in a step, pipeline against ZeRO-3, for the same global batch of m
// microbatches of b rows: the pipeline computes all of them, ZeRO-3's N ranks share them in g = ceil(m / N)
// accumulation steps.
void against_zero(const Flags& flags, std::ostream& out) {
  const double b = flags.number("micro-batch");
  const double s = flags.number("sequence");
  const double h = flags.number("hidden");
  const double parameters = flags.number("parameters");
  const std::int64_t ranks = flags.integer("stages");
  const std::int64_t microbatches = flags.integer("microbatches");
  if (ranks < 1 || microbatches < 1) {
    throw InputError(ExitCode::usage, "pipedream compare", "stages and microbatches are at least 1",
                     "choose 1 or more");
  }
  const std::int64_t accumulation = (microbatches + ranks - 1) / ranks;
  const double g = static_cast<double>(accumulation), n = static_cast<double>(ranks);
  const double pipeline = pipeline_bytes(static_cast<double>(microbatches), b, s, h);
  const double most = zero3_most_bytes(g, parameters, n), least = zero3_least_bytes(g, parameters, n);
  out << table_text({{"one rank sends in a step", "formula", "bytes"},
                     {"pipeline, an interior stage", "4 m b s h", bytes_text(pipeline)},
                     {"ZeRO-3, at most", "6 g P (N - 1) / N", bytes_text(most)},
                     {"ZeRO-3, at least", "(2 g + 2) P (N - 1) / N", bytes_text(least)}})
      << "with m = " << microbatches << ", b = " << number_text(b) << ", s = " << number_text(s)
      << ", h = " << number_text(h) << ", g = ceil(m / N) = " << accumulation
      << ", P = " << number_text(parameters) << ", N = " << ranks << ", 2 bytes an element\n"
      << "at most: every forward and every backward gathers all P; at least: P is gathered once a step and "
         "stays\n";
  if (pipeline > 0 && least > 0) out << times_as_much(least / pipeline, most / pipeline);
}

void refuse_unread_by_compare(const Flags& flags) {
  flags.refuse_beside("against-zero", cost_flags());
  flags.refuse_beside("against-zero", {"batches", "chunks", "warmup", "json"});
  flags.refuse_without("against-zero", {"micro-batch", "sequence", "hidden", "parameters"});
}

}  // namespace

int compare_command(const std::vector<std::string>& arguments, const Console& console) {
  Flags flags("compare", "a table over schedules for the same microbatches");
  flags.add_shape("batches one behind the other");
  flags.add_costs();
  flags.add("json", "also writes the table to this file");
  flags.add_switch("against-zero",
                   "instead: bytes that a rank sends in a step, pipeline against ZeRO-3 on as many ranks");
  flags.add("micro-batch", "b, rows of a microbatch", "4");
  flags.add("sequence", "s, tokens of a row", "1024");
  flags.add("hidden", "h, width of the model", "1024");
  flags.add("parameters", "P, parameters of the model", "354823168");
  if (flags.parse(arguments, console)) return 0;
  refuse_unread_by_compare(flags);
  if (flags.on("against-zero")) {
    against_zero(flags, console.out);
    return 0;
  }
  const std::vector<Comparison> rows = all_rows(flags, flags.costs());
  console.out << count_text(flags.integer("stages"), "stage") << ", "
              << count_text(rows.front().microbatches, "microbatch") << " (simulated)\n"
              << table(rows);
  if (flags.given("json")) write_text(flags.text("json"), json(rows));
  return 0;
}

}  // namespace sc::pipedream

#include "search.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/workload_table.h"
#include "common/pipeline/split.h"
#include "common/run/surroundings.h"

namespace sc::choose {
namespace {

constexpr std::int64_t kMostGpusTried = 64;  // when nothing fits on fewer

// Whether the host's memory matters. What a rank holds there besides states is small, and every machine has
// it.
bool host_needed(const Candidate& candidate, const Machine& machine) {
  return candidate.host || machine.host_memory.has_value();
}

// The most sets of equal ranks of which each is planned; of more, only some, if heads are shared evenly.
constexpr std::int64_t kAllAsked = 32;
enum class Asked {
  // The first tensor rank of the first, the last and a middle stage: what does not fit there never fits.
  some,
  // All tensor ranks of the first and the last stage, and each stage's first one.
  all
};

bool few_enough(const RunShape& shape) { return shape.mesh.of_a_replica() <= kAllAsked; }
// Which ranks' plans are made for bytes sent (asked_for_bytes), and to find out first what does not fit
// (asked_first).
Asked asked_for_bytes(const RunShape& shape) { return few_enough(shape) ? Asked::all : Asked::some; }
Asked asked_first(const RunShape& shape) { return shape.mesh.of_a_replica() <= 4 ? Asked::all : Asked::some; }

// Calls f(shape of a rank, how many are like it; 0: not counted) for one rank of each set of equal ones.
void of_ranks(RunShape shape, Asked asked,
              const std::function<void(const RunShape&, std::int64_t alike)>& f) {
  const bool even = shape.workload.model.heads % shape.mesh.size(Axis::tensor) == 0,
             every = asked == Asked::all && (few_enough(shape) || !even);
  const std::int64_t stages = shape.mesh.size(Axis::stages);
  for (const Rank rank : shape.mesh.firsts(detail::kAlike)) {
    shape.rank = rank;
    const std::int64_t stage = shape.at(Axis::stages);
    const bool end = stage == 0 || stage + 1 == stages, first = shape.at(Axis::tensor) == 0;
    if (!every && (asked == Asked::some ? !first || !(end || stage == stages / 2) : !(end || first)))
      continue;
    f(shape, every ? shape.mesh.group(rank, detail::kAlike).count : 0);
  }
}

Needs needs_of(const Candidate& candidate, const RunShape& shape, Asked asked) {
  Needs needs;
  Bytes host, disk;  // the most of any rank
  std::int64_t counted = 0;
  of_ranks(shape, asked, [&](const RunShape& rank, std::int64_t alike) {
    MemoryPlan plan = candidate.plans.plans->memory_plan(rank);
    detail::plan_surroundings(rank, plan);
    const Bytes of_host = plan.total(Place::pinned) + plan.total(Place::host),
                of_disk = plan.total(Place::disk);
    needs.device = std::max(needs.device, plan.total() + kBesideThePlan);
    needs.host += alike * of_host, needs.disk += alike * of_disk;
    host = std::max(host, of_host), disk = std::max(disk, of_disk), counted += alike;
  });
  const std::int64_t others = to_int(shape.mesh.world()) - counted;
  needs.host += others * host, needs.disk += others * disk;
  return needs;
}

// What the machine lacks for a candidate, in words; empty if it has everything.
std::string missing(const Candidate& candidate, const Machine& machine, const Needs& needs) {
  std::vector<std::string> lacks;
  const auto check = [&](Bytes needed, Bytes there, const char* where) {
    if (needed > there)
      lacks.push_back(fmt::format("{} {}, {} there", human_bytes(needed), where, human_bytes(there)));
  };
  check(needs.device, machine.memory, "on a GPU");
  if (host_needed(candidate, machine) && machine.host_memory)
    check(needs.host, *machine.host_memory, "in the host's memory");
  if (machine.disk_size) check(needs.disk, *machine.disk_size, "on the disk");
  return lacks.empty() ? "" : fmt::format("needs {}", fmt::join(lacks, "; "));
}

// What the machine does not have at all, known before any plan; empty if it has everything.
std::string not_given(const Candidate& candidate, const Machine& machine) {
  if (candidate.host && !machine.host_memory)
    return "cannot: it keeps states on the host; give --host-memory";
  if (candidate.disk && !machine.disk) return "cannot: it keeps states on a disk; give --disk";
  return "";
}

// The shapes of a rank with so many rows: the least recomputation first, then the largest batch.micro.
std::vector<RunShape> variants(RunShape shape, std::int64_t rows) {
  std::vector<RunShape> all;
  for (const Activations activations :
       {Activations::keep, Activations::recompute_gelu, Activations::recompute}) {
    shape.workload.activations = activations;
    for (std::int64_t micro = rows; micro >= 1; --micro) {
      shape.workload.batch.micro = micro;
      if (rows % micro == 0) all.push_back(shape);
    }
  }
  return all;
}

void count_bytes(Row& row, const Rates& rates) {
  of_ranks(row.shape, asked_for_bytes(row.shape), [&](const RunShape& rank, std::int64_t) {
    const CommPlan plan = row.candidate.plans.plans->comm_plan(rank);
    row.sent = std::max(row.sent, moved_bytes(plan, Way::wire, rank.rank));
    row.to_nodes = std::max(row.to_nodes, Bytes(std::llround(node_bytes(rank, plan, rates))));
    row.copied = std::max(row.copied, moved_bytes(plan, Way::link, rank.rank));
    row.on_disk = std::max(row.on_disk, moved_bytes(plan, Way::disk, rank.rank));
  });
}

// Takes a shape into the row if it is better than the row's, or nothing fits and it misses least.
void consider(Row& row, const RunShape& shape, const Machine& machine, const Rates& rates) {
  if (row.fits && row.candidate.at_least && row.candidate.at_least(shape, rates) >= row.seconds) return;
  Needs needs;
  const auto fits = [&](Asked asked) {
    needs = needs_of(row.candidate, shape, asked);
    const std::string lack = missing(row.candidate, machine, needs);
    if (!lack.empty() && !row.fits && (row.reason.empty() || needs.device < row.needs.device))
      row.shape = shape, row.needs = needs, row.reason = lack;
    return lack.empty();
  };
  if (!fits(asked_first(shape))) return;
  const double seconds = row.candidate.seconds(shape, rates);
  if (row.fits && seconds >= row.seconds * (1 - 1e-9)) return;
  if (asked_first(shape) == Asked::some && !fits(Asked::all)) return;
  row.fits = true, row.reason.clear();
  row.shape = shape, row.needs = needs, row.seconds = seconds;
}

Row row_of(const Candidate& candidate, const Machine& machine, const Rates& rates, const Workload& workload) {
  Row row{.candidate = candidate, .reason = not_given(candidate, machine)};
  if (!row.reason.empty()) return row;
  RunShape shape = shape_on(candidate.plans, machine.gpus, workload);
  const std::int64_t rows = workload.batch.global, ranks = shape.mesh.size(Axis::data);
  if (rows % ranks != 0) {
    row.reason = fmt::format("cannot: batch.global={} rows cannot be shared evenly by {}", rows, ranks);
    return row;
  }
  std::string refused;
  const auto consider_if_allowed = [&](Row& of, const RunShape& variant) {
    try {
      consider(of, variant, machine, rates);
    } catch (const InputError& error) {
      if (refused.empty()) refused = fmt::format("cannot: {}: {}", error.where(), error.message());
    }
  };
  const std::vector<RunShape> all = variants(shape, rows / ranks);
  if (candidate.least_is_known) {
    Row least = row;
    consider_if_allowed(least, all.back());
    if (least.needs.device > machine.memory) return least;
  }
  for (const RunShape& variant : all) consider_if_allowed(row, variant);
  if (row.fits) count_bytes(row, rates);
  if (!row.fits && row.reason.empty()) row.reason = refused;
  return row;
}

}  // namespace

std::string activations_setting(Workload workload) {
  return "activations=" + workload_fields().bind(workload).find("activations")->get();
}

double Row::tokens_per_second() const {
  const BatchConfig& batch = shape.workload.batch;
  return seconds > 0 ? static_cast<double>(batch.global * batch.sequence) / seconds : 0;
}

std::vector<std::string> Row::settings() const {
  std::vector<std::string> all = candidate.plans.settings;
  if (shape.workload.activations != Activations::keep) all.push_back(activations_setting(shape.workload));
  return all;
}

std::vector<Row> search(const Machine& machine, const Measured& measured, const Workload& workload) {
  const Rates rates = rates_of(machine, measured, workload.precision.dtype);
  std::vector<Row> rows;
  for (const Candidate& candidate : candidates(machine.gpus))
    rows.push_back(row_of(candidate, machine, rates, workload));
  for (const Candidate& candidate : groupings(machine.gpus, machine.node(), workload.model))
    rows.push_back(row_of(candidate, machine, rates, workload));
  for (const Candidate& candidate : residents(machine.gpus, workload.model))
    rows.push_back(row_of(candidate, machine, rates, workload));
  return rows;
}

namespace {

// Whether another candidate of the same kind, which is shown instead, is as quick.
bool is_outdone(const Row& row, const std::vector<Row>& rows) {
  return row.candidate.by_degrees && std::ranges::any_of(rows, [&](const Row& other) {
           return other.candidate.kind == row.candidate.kind && other.fits &&
                  (other.seconds < row.seconds || (other.seconds == row.seconds && &other < &row));
         });
}

}  // namespace

const Row* best(const std::vector<Row>& rows) {
  const auto costs = [](const Row& row) { return std::pair(row.candidate.host, row.to_nodes); };
  double most = 0;
  for (const Row& row : rows)
    if (row.fits && !row.candidate.late) most = std::max(most, row.tokens_per_second());
  const Row* found = nullptr;
  for (const Row& row : rows)
    if (row.fits && !row.candidate.late && row.tokens_per_second() >= (1 - kAsGood) * most &&
        (found == nullptr || costs(row) < costs(*found)) && !is_outdone(row, rows))
      found = &row;
  return found;
}

std::vector<Row> best_of_kinds(const std::vector<Row>& rows) {
  std::vector<Row> kinds;
  for (const Row& row : rows) {
    const auto same = std::ranges::find_if(kinds, [&](const Row& other) {
      return !row.candidate.kind.empty() && other.candidate.kind == row.candidate.kind;
    });
    if (same == kinds.end())
      kinds.push_back(row);
    else if (row.fits ? !same->fits || row.seconds < same->seconds
                      : !same->fits && row.needs.device.value() > 0 &&
                            (same->needs.device.value() == 0 || row.needs.device < same->needs.device))
      *same = row;
  }
  return kinds;
}

std::vector<Row> nearest(const std::vector<Row>& rows, std::size_t count) {
  std::vector<Row> fit;
  std::ranges::copy_if(rows, std::back_inserter(fit),
                       [&](const Row& row) { return row.fits && !is_outdone(row, rows); });
  std::ranges::stable_sort(fit, {}, &Row::seconds);
  fit.resize(std::min(fit.size(), count));
  return fit;
}

namespace {

constexpr double kEndless = 1e30;  // bytes per second of a link without limit

// The purpose of most bytes that a rank sends, to other nodes or within its own.
std::string most_of(const Row& row, const Rates& rates, bool nodes) {
  std::map<OpPurpose, double> bytes;
  of_ranks(row.shape, asked_for_bytes(row.shape), [&](const RunShape& rank, std::int64_t) {
    std::map<OpPurpose, double> here;
    for (const auto& [op, count] : row.candidate.plans.plans->comm_plan(rank).count) {
      const CommPlan one{{{op, count}}};
      const double outside = node_bytes(rank, one, rates),
                   all = static_cast<double>(moved_bytes(one, Way::wire, rank.rank).value());
      here[op.purpose] += nodes ? outside : all - outside;
    }
    for (const auto& [purpose, sum] : here) bytes[purpose] = std::max(bytes[purpose], sum);
  });
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& each) { return each.second; });
  std::string name(name_of(most->first));
  std::ranges::replace(name, '_', ' ');
  return name;
}

std::array<MessageRate*, 4> copies_of(Rates& rates) {
  return {&rates.pair.sum, &rates.pair.gather, &rates.group.sum, &rates.group.gather};
}

Rates endless_link(Rates rates) {
  rates.link = kEndless;
  for (MessageRate* rate : copies_of(rates)) rate->bytes = kEndless;
  return rates;
}

}  // namespace

std::string waits_for(const Row& row, const Rates& rates) {
  struct Wait {
    double share = 0;
    std::string what = {};
  };
  Wait most;
  const auto with = [&](Rates changed, const auto& what) {
    const double share = 1 - row.candidate.seconds(row.shape, changed) / row.seconds;
    if (share > most.share) most = {share, what()};
  };
  Rates other = rates;
  other.node_link = kEndless;
  if (row.to_nodes.value() > 0)
    with(other, [&] {
      return fmt::format("the link between nodes: {} a GPU, {} most", human_bytes(row.to_nodes),
                         most_of(row, rates, true));
    });
  other = endless_link(rates), other.call_seconds = 0;
  for (MessageRate* rate : copies_of(other)) rate->call_seconds = 0;
  if (row.sent > row.to_nodes)
    with(other, [&] {
      return fmt::format("the link between GPUs: {} a GPU, {} most", human_bytes(row.sent - row.to_nodes),
                         most_of(row, rates, false));
    });
  other = rates, other.host_link = kEndless;
  if (row.copied.value() > 0)
    with(other, [&] { return fmt::format("the host's link: {}", human_bytes(row.copied)); });
  other = rates, other.adam = other.adam_early = kEndless;
  if (row.candidate.host) with(other, [] { return std::string("AdamW on the host"); });
  other = rates, other.disk = kEndless;
  if (row.on_disk.value() > 0)
    with(other, [&] { return fmt::format("the disk: {}", human_bytes(row.on_disk)); });
  if (row.candidate.at_least && row.shape.mesh.size(Axis::stages) > 1) {
    other = endless_link(rates), other.node_link = kEndless;
    const double idle =
        (row.candidate.seconds(row.shape, other) - row.candidate.at_least(row.shape, other)) / row.seconds;
    if (idle > most.share)
      most = {idle, fmt::format("other stages: {} micro-batches for {} of them", micro_batches_of(row.shape),
                                row.shape.mesh.size(Axis::stages))};
  }
  if (most.share < 0.01) return "products, which hide all else";
  return fmt::format("{:.0f} % waits for {}", 100 * most.share, most.what);
}

std::vector<std::string> nearest_that_works(const Machine& machine, const Measured& measured,
                                            const Workload& workload) {
  std::vector<std::string> found;
  const auto with = [&](const Machine& changed, const std::string& what) {
    const std::vector<Row> rows = search(changed, measured, workload);
    const Row* row = best(rows);
    if (row != nullptr)
      found.push_back(fmt::format("{}: lesson {} batch.micro={} {}", what, row->candidate.plans.folder,
                                  row->shape.workload.batch.micro, fmt::join(row->settings(), " ")));
    return row != nullptr;
  };
  Machine more = machine;
  more.host_memory = Bytes(INT64_MAX);
  for (const bool disk : {false, true}) {
    if (disk) more.disk = machine.disk.value_or(4e9), more.disk_size.reset();
    Bytes least(INT64_MAX);  // the least host memory with which a row fits
    for (const Row& row : search(more, measured, workload))
      if (row.fits && row.candidate.host) least = std::min(least, row.needs.host);
    if (least == Bytes(INT64_MAX)) continue;
    Machine exact = more;
    exact.host_memory = Bytes(std::max(ceil_div(least.value(), 1'000'000'000) * 1'000'000'000,
                                       machine.host_memory.value_or(Bytes(0)).value()));
    with(exact, fmt::format("--host-memory {}GB{}", exact.host_memory->value() / 1'000'000'000,
                            disk ? fmt::format(" --disk {:g}GB/s", *more.disk / 1e9) : ""));
  }
  more = machine;
  for (more.gpus = 2 * machine.gpus; more.gpus <= kMostGpusTried; more.gpus *= 2)
    if (with(more, fmt::format("--gpus {}", more.gpus))) break;
  Bytes least(INT64_MAX);
  more = machine;
  for (const Row& row : search(machine, measured, workload)) {
    more.memory = row.needs.device;  // is that all it lacks?
    if (row.needs.device > machine.memory && missing(row.candidate, more, row.needs).empty())
      least = std::min(least, row.needs.device);
  }
  if (least < Bytes(INT64_MAX)) {
    more.memory = Bytes(ceil_div(least.value(), 1'000'000'000) * 1'000'000'000);
    with(more, fmt::format("--memory {}GB", more.memory.value() / 1'000'000'000));
  }
  return found;
}

}  // namespace sc::choose

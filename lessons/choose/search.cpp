#include "search.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/workload_table.h"
#include "common/run/surroundings.h"

namespace sc::choose {
namespace {

constexpr std::int64_t kMostGpusTried = 64;  // where fewer fit nothing

// What a rank holds of the host beside states is small, and every machine has it.
bool host_needed(const Candidate& candidate, const Machine& machine) {
  return candidate.host || machine.host_memory.has_value();
}

Needs needs_of(const Candidate& candidate, const RunShape& shape) {
  Needs needs;
  for (const MemoryPlan& plan : detail::plans_of_world(*candidate.plans.plans, shape)) {
    needs.device = std::max(needs.device, plan.total() + kBesideThePlan);
    needs.host += data_ranks(shape) * (plan.total(Place::pinned) + plan.total(Place::host));
    needs.disk += data_ranks(shape) * plan.total(Place::disk);
  }
  return needs;
}

// Empty: all is there.
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

// Before any plan: what the machine does not have at all.
std::string not_given(const Candidate& candidate, const Machine& machine) {
  if (candidate.host && !machine.host_memory)
    return "cannot: it keeps states on the host; give --host-memory";
  if (candidate.disk && !machine.disk) return "cannot: it keeps states on a disk; give --disk";
  return "";
}

// Of a rank with so many rows: what computes least again first, then the largest batch.micro.
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

void count_bytes(Row& row) {
  detail::of_world(row.shape, [&](const RunShape& rank) {
    const CommPlan plan = row.candidate.plans.plans->comm_plan(rank);
    row.sent = std::max(row.sent, moved_bytes(plan, Way::wire, rank.rank));
    row.copied = std::max(row.copied, moved_bytes(plan, Way::link, rank.rank));
    row.on_disk = std::max(row.on_disk, moved_bytes(plan, Way::disk, rank.rank));
    return plan;
  });
}

// One shape: better than what the row has, or the one that misses least.
void consider(Row& row, const RunShape& shape, const Machine& machine, const Rates& rates) {
  const Needs needs = needs_of(row.candidate, shape);
  const std::string lack = missing(row.candidate, machine, needs);
  if (!lack.empty()) {
    if (row.fits || (!row.reason.empty() && row.needs.device <= needs.device)) return;
    row.shape = shape, row.needs = needs, row.reason = lack;
    return;
  }
  const double seconds = row.candidate.seconds(shape, rates);
  if (row.fits && seconds >= row.seconds * (1 - 1e-9)) return;
  row.fits = true, row.reason.clear();
  row.shape = shape, row.needs = needs, row.seconds = seconds;
}

Row row_of(const Candidate& candidate, const Machine& machine, const Rates& rates, const Workload& workload) {
  Row row{.candidate = candidate, .reason = not_given(candidate, machine)};
  if (!row.reason.empty()) return row;
  RunShape shape = shape_on(candidate.plans, machine.gpus, workload);
  const std::int64_t rows = workload.batch.global, ranks = data_ranks(shape);
  if (rows % ranks != 0) {
    row.reason = fmt::format("cannot: batch.global={} rows cannot be shared evenly by {}", rows, ranks);
    return row;
  }
  std::string refused;
  for (const RunShape& variant : variants(shape, rows / ranks)) {
    try {
      consider(row, variant, machine, rates);
    } catch (const InputError& error) {
      if (refused.empty()) refused = fmt::format("cannot: {}: {}", error.where(), error.message());
    }
  }
  if (row.fits) count_bytes(row);
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
  return rows;
}

const Row* best(const std::vector<Row>& rows) {
  double most = 0;
  for (const Row& row : rows)
    if (row.fits && !row.candidate.late) most = std::max(most, row.tokens_per_second());
  for (const Row& row : rows)
    if (row.fits && !row.candidate.late && row.tokens_per_second() >= (1 - kAsGood) * most) return &row;
  return nullptr;
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
    Bytes least(INT64_MAX);  // of the host's memory
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
  for (const Row& row : search(machine, measured, workload))
    if (row.needs.device > machine.memory) least = std::min(least, row.needs.device);
  more = machine, more.memory = Bytes(ceil_div(least.value(), 1'000'000'000) * 1'000'000'000);
  if (least < Bytes(INT64_MAX)) with(more, fmt::format("--memory {}GB", more.memory.value() / 1'000'000'000));
  return found;
}

}  // namespace sc::choose

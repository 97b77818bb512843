#include "common/records/report.h"

#include <spdlog/fmt/fmt.h>

#include <set>
#include <vector>

#include "common/base/text.h"

namespace sc {
namespace {

using Rows = std::vector<std::vector<std::string>>;

bool in_memory(Purpose purpose) { return purpose != Purpose::host && purpose != Purpose::disk; }

std::string exact(Bytes bytes) { return human_count(bytes.value()); }

// A purpose's row carries its sum and first buffer; its further buffers follow below.
void add_purpose(const MemoryPlan& plan, Purpose purpose, Rows& rows) {
  bool first = true;
  for (const MemoryPlan::Item& item : plan.items()) {
    if (item.purpose != purpose || item.bytes.value() == 0) continue;
    rows.push_back({first ? std::string(name_of(purpose)) : "", first ? human_bytes(plan.of(purpose)) : "",
                    item.name, exact(item.bytes), item.formula.empty() ? "" : "= " + item.formula});
    first = false;
  }
}

std::string memory_table(const MemoryPlan& plan) {
  Rows rows = {{"purpose", "bytes", "buffer", "bytes", "formula"}};
  for (int p = 0; p < kPurposes; ++p) {
    if (in_memory(static_cast<Purpose>(p))) add_purpose(plan, static_cast<Purpose>(p), rows);
  }
  rows.push_back({"total", human_bytes(plan.total()), "", exact(plan.total())});
  const std::size_t inside = rows.size();
  add_purpose(plan, Purpose::host, rows);
  add_purpose(plan, Purpose::disk, rows);
  return table(rows) + (rows.size() > inside ? "  (host and disk are not part of the total)\n" : "");
}

std::string operation_table(const CommPlan& plan, WorldSize world) {
  if (plan.count.empty()) return "  none\n";
  Rows rows = {{"operation", "count", "elements", "dtype", "a rank sends"}};
  std::int64_t count = 0;
  for (const auto& [op, times] : plan.count) {
    count += times;
    rows.push_back({std::string(name_of(op.kind)), human_count(times), human_count(op.elements.value()),
                    std::string(name_of(op.dtype)), human_bytes(wire_bytes(op, world) * times)});
  }
  rows.push_back({"total", human_count(count), "", "", human_bytes(bytes_sent(plan, world, Rank{0}))});
  return table(rows);
}

void compare(const std::string& what, std::int64_t predicted, std::int64_t measured, Rows& rows) {
  rows.push_back(
      {what, human_count(predicted), human_count(measured), predicted == measured ? "equal" : "DIFFERENT"});
}

std::int64_t count_of(const CommPlan& plan, const CommOp& op) {
  const auto found = plan.count.find(op);
  return found == plan.count.end() ? 0 : found->second;
}

}  // namespace

Bytes bytes_sent(const CommPlan& plan, WorldSize world, Rank rank) {
  Bytes sum;
  for (const auto& [op, times] : plan.count) sum += wire_bytes(op, world, rank) * times;
  return sum;
}

std::string format_plan_table(const MemoryPlan& memory, const CommPlan& comm, WorldSize world) {
  return "memory of a rank\n" + memory_table(memory) + "operations of a rank in one step\n" +
         operation_table(comm, world);
}

std::string format_predicted_measured(const MemoryPlan& memory, const CommPlan& comm,
                                      const Measured& measured, WorldSize world, Rank rank) {
  Rows bytes = {{fmt::format("peak bytes of rank {}", to_int(rank)), "predicted", "measured"}};
  for (int p = 0; p < kPurposes; ++p) {
    const auto purpose = static_cast<Purpose>(p);
    const Bytes found = measured.peak.at(static_cast<std::size_t>(p)), planned = memory.of(purpose);
    if (planned.value() != 0 || found.value() != 0)
      compare(std::string(name_of(purpose)), planned.value(), found.value(), bytes);
  }
  compare("total", memory.total().value(), measured.peak_total.value(), bytes);

  Rows operations = {{"operations of one step", "predicted", "measured"}};
  std::set<CommOp> all;
  for (const auto& entry : comm.count) all.insert(entry.first);
  for (const auto& entry : measured.operations.count) all.insert(entry.first);
  for (const CommOp& op : all)
    compare(describe(op), count_of(comm, op), count_of(measured.operations, op), operations);
  compare("bytes sent", bytes_sent(comm, world, rank).value(),
          bytes_sent(measured.operations, world, rank).value(), operations);
  return table(bytes) + table(operations);
}

Bytes AllocatorCheck::predicted() const {
  Bytes sum;
  for (const Part& part : parts) sum += part.bytes;
  return sum;
}

bool AllocatorCheck::holds() const {
  constexpr std::int64_t kShare = 100;  // 1 %
  const std::int64_t slack = predicted().value() / kShare;
  const std::int64_t more = (peak - predicted()).value();
  return more <= slack && (at_most || -more <= slack);
}

std::string format_allocator(const AllocatorCheck& check) {
  Rows rows = {{"allocated on the GPU", "predicted", "measured"}};
  for (const AllocatorCheck::Part& part : check.parts)
    rows.push_back({part.name, human_count(part.bytes.value())});
  const double share = 100.0 * static_cast<double>((check.peak - check.predicted()).value()) /
                       static_cast<double>(check.predicted().value());
  rows.push_back({"peak", (check.at_most ? "at most " : "") + human_count(check.predicted().value()),
                  human_count(check.peak.value()), fmt::format("{:+.2f} %", share)});
  if (check.windows.value() > 0)
    rows.push_back({"of it windows, by NCCL", "", human_count(check.windows.value())});
  if (check.allocations) compare("allocations in the step", 0, *check.allocations, rows);
  if (check.beside.empty()) return table(rows);
  rows.push_back({"in use on the GPU beside it"});
  for (const AllocatorCheck::Part& part : check.beside)
    rows.push_back({part.name, "", human_count(part.bytes.value())});
  return table(rows);
}

bool as_predicted(const MemoryPlan& memory, const CommPlan& comm, const Measured& measured) {
  for (int p = 0; p < kPurposes; ++p) {
    if (memory.of(static_cast<Purpose>(p)) != measured.peak.at(static_cast<std::size_t>(p))) return false;
  }
  return memory.total() == measured.peak_total && comm == measured.operations;
}

}  // namespace sc

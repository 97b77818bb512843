#include "common/records/report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <set>
#include <vector>

#include "common/base/text.h"

namespace sc {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::int64_t count_of(const CommPlan& plan, const Operation& op) {
  const auto found = plan.count.find(op);
  return found == plan.count.end() ? 0 : found->second;
}

// Adds a purpose's rows: the first has its sum and first buffer, the others its further buffers.
void add_purpose(const MemoryPlan& plan, Purpose purpose, Place place, Rows& rows) {
  bool first = true;
  for (const Buffer& item : plan.items()) {
    if (item.purpose != purpose || item.place != place || item.bytes().value() == 0) continue;
    rows.push_back({first ? at_place(in_words(purpose), place) : "",
                    first ? human_bytes(plan.of(purpose, place)) : "", item.name,
                    human_count(item.bytes().value()), item.formula().empty() ? "" : "= " + item.formula()});
    first = false;
  }
}

std::string memory_table(const MemoryPlan& plan) {
  Rows rows = {{"purpose", "bytes", "buffer", "bytes", "formula"}};
  for_each_place([&](Place place) {
    const Bytes total = plan.total(place);
    if (place != Place::device && total.value() == 0) return;
    for_each_purpose([&](Purpose purpose) { add_purpose(plan, purpose, place, rows); });
    rows.push_back({at_place("total", place), human_bytes(total), "", human_count(total.value())});
  });
  return table(rows);
}

// The name of a sum of bytes. Messages, copies over the link and transfers of the disk have one each.
std::string sum_name(Way way) { return way == Way::wire ? "total" : "over the " + std::string(name_of(way)); }

std::string operation_table(const CommPlan& named) {
  const CommPlan plan = named.without_names();
  if (plan.count.empty()) return "  none\n";
  Rows rows = {{"operation", "count", "elements", "dtype", "a rank sends"}};
  for (const Way way : {Way::wire, Way::link, Way::disk}) {
    std::int64_t count = 0;
    for (const auto& [op, times] : plan.count) {
      if (way_of(op.kind) != way) continue;
      count += times;
      const Bytes bytes = way == Way::wire ? wire_bytes(op) : bytes_of(op.elements, op.dtype);
      rows.push_back({std::string(name_of(op.kind)), human_count(times), human_count(op.elements.value()),
                      std::string(name_of(op.dtype)), human_bytes(bytes * times)});
    }
    if (count > 0)
      rows.push_back(
          {sum_name(way), human_count(count), "", "", human_bytes(moved_bytes(plan, way, Rank{0}))});
  }
  return table(rows);
}

// The ranks whose plans look the same in tables.
struct Group {
  std::vector<std::int64_t> ranks;  // ascending
  RankPlan plan;                    // without payloads
  [[nodiscard]] std::string name() const { return ranks_in_words(ranks); }
};

std::vector<Group> group_equal(const std::vector<RankPlan>& plans) {
  std::vector<Group> groups;
  for (const RankPlan& of : plans) {
    RankPlan plan{of.memory, of.operations.without_names()};
    auto group = std::ranges::find_if(groups, [&](const Group& g) { return g.plan == plan; });
    if (group == groups.end()) group = groups.insert(group, Group{{}, std::move(plan)});
    for (const std::int64_t rank : of.ranks.all()) group->ranks.push_back(rank);
  }
  for (Group& group : groups) std::ranges::sort(group.ranks);
  return groups;
}

// Adds one rowof each group's bytes. It is left out if all are zero, unless it is always shown.
template <class BytesIn>
void add_bytes_row(const std::string& name, const std::vector<Group>& groups, const BytesIn& bytes_in,
                   Rows& rows, bool always = false) {
  std::vector<std::string> row = {name};
  for (const Group& group : groups) {
    const Bytes bytes = bytes_in(group);
    always = always || bytes.value() > 0;
    row.push_back(human_bytes(bytes));
  }
  if (always) rows.push_back(row);
}

void add_purpose_row(const std::vector<Group>& groups, Purpose purpose, Place place, Rows& rows) {
  const auto bytes_in = [=](const Group& group) { return group.plan.memory.of(purpose, place); };
  add_bytes_row(at_place(in_words(purpose), place), groups, bytes_in, rows);
}

// The table of bytes by purpose, with one column for each group of equal ranks.
std::string memory_by_group(const std::vector<Group>& groups) {
  Rows rows = {{"purpose"}};
  for (const Group& group : groups) rows[0].push_back(group.name());
  for_each_place([&](Place place) {
    for_each_purpose([&](Purpose purpose) { add_purpose_row(groups, purpose, place, rows); });
    const auto bytes_in = [=](const Group& group) { return group.plan.memory.total(place); };
    add_bytes_row(at_place("total", place), groups, bytes_in, rows);
  });
  return table(rows);
}

std::string operations_by_group(const std::vector<Group>& groups, WorldSize world) {
  Rows rows = {{"operation"}};
  std::set<Operation> all;
  for (const Group& group : groups) {
    rows[0].push_back(group.name());
    for (const auto& entry : group.plan.operations.count) all.insert(entry.first);
  }
  for (const Operation& op : all) {
    rows.push_back({describe(op, world)});
    for (const Group& group : groups) rows.back().push_back(human_count(count_of(group.plan.operations, op)));
  }
  for (const Way way : {Way::wire, Way::link, Way::disk}) {
    const auto bytes_in = [=](const Group& group) {
      return moved_bytes(group.plan.operations, way, Rank{static_cast<int>(group.ranks.front())});
    };
    add_bytes_row(way == Way::wire ? "a rank sends" : sum_name(way), groups, bytes_in, rows,
                  way == Way::wire);
  }
  return table(rows);
}

void compare(const std::string& what, std::int64_t predicted, std::int64_t measured, Rows& rows) {
  rows.push_back(
      {what, human_count(predicted), human_count(measured), predicted == measured ? "equal" : "DIFFERENT"});
}

std::set<Operation> all_of(const CommPlan& a, const CommPlan& b) {
  std::set<Operation> all;
  for (const CommPlan* plan : {&a, &b})
    for (const auto& entry : plan->count) all.insert(entry.first);
  return all;
}

// Compares operations without payloads; compares these too if only they differ.
void compare_operations(const CommPlan& predicted, const CommPlan& measured, WorldSize world, Rows& rows) {
  const CommPlan a = predicted.without_names(), b = measured.without_names();
  for (const Operation& alike : all_of(a, b)) {
    compare(describe(alike, world), count_of(a, alike), count_of(b, alike), rows);
    if (count_of(a, alike) != count_of(b, alike)) continue;
    for (const Operation& op : all_of(predicted, measured)) {
      if (op.without_names() == alike && count_of(predicted, op) != count_of(measured, op))
        compare(describe(op, world), count_of(predicted, op), count_of(measured, op), rows);
    }
  }
}

std::string behind(const std::map<std::int64_t, std::int64_t>& counts) {
  std::string text;
  for (const auto& [updates, microbatches] : counts)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", updates, human_count(microbatches));
  return text;
}

Rows rows_of(const std::vector<Timetable::Share>& shares) {
  Rows rows = {{"time of a step, mean"}};
  for (std::size_t rank = 0; rank < shares.front().seconds.size(); ++rank)
    rows.front().push_back(fmt::format("rank {}", rank));
  for (const Timetable::Share& share : shares) {
    rows.push_back({share.name});
    for (const double seconds : share.seconds) rows.back().push_back(fmt::format("{:.2f} ms", 1e3 * seconds));
  }
  return rows;
}

}  // namespace

std::string at_place(std::string_view what, Place place) {
  return std::string(what) + (place == Place::device ? "" : ", " + std::string(name_of(place)));
}

RankBytes bytes_of(const MemoryPlan& plan) {
  RankBytes bytes{{}, plan.total()};
  for (const Buffer& item : plan.items()) bytes.of.at(item.purpose, item.place) += item.bytes();
  return bytes;
}

std::string ranks_in_words(const std::vector<std::int64_t>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  if (ranks.back() - ranks.front() + 1 == static_cast<std::int64_t>(ranks.size()))
    return fmt::format("ranks {}-{}", ranks.front(), ranks.back());
  constexpr std::size_t kAll = 4;
  if (ranks.size() <= kAll) return fmt::format("ranks {}", fmt::join(ranks, ", "));
  return fmt::format("ranks {}, {}, ..., {}", ranks[0], ranks[1], ranks.back());
}

std::string format_plan_table(const std::vector<RankPlan>& ranks, WorldSize world) {
  const std::vector<Group> groups = group_equal(ranks);
  if (groups.size() == 1) {
    return "memory of a rank\n" + memory_table(ranks[0].memory) + "operations of a rank in one step\n" +
           operation_table(ranks[0].operations);
  }
  const Group& most =
      *std::ranges::max_element(groups, {}, [](const Group& group) { return group.plan.memory.total(); });
  return "memory of the ranks\n" + memory_by_group(groups) + "of them " + most.name() + ", which hold" +
         (most.ranks.size() == 1 ? "s" : "") + " most\n" + memory_table(most.plan.memory) +
         "operations of the ranks in one step\n" + operations_by_group(groups, world);
}

std::string format_predicted_measured(const MemoryPlan& memory, const CommPlan& comm,
                                      const Measured& measured, WorldSize world, Rank rank) {
  Rows bytes = {{fmt::format("peak bytes of rank {}", to_int(rank)), "predicted", "measured"}};
  const auto unlike = differences(memory.by_name(), measured.peak_by_name);
  for_each_place([&](Place place) {
    for_each_purpose([&](Purpose purpose) {
      const Bytes found = measured.peak.of.at(purpose, place), planned = memory.of(purpose, place);
      if (planned.value() != 0 || found.value() != 0)
        compare(at_place(in_words(purpose), place), planned.value(), found.value(), bytes);
      if (planned == found) return;
      for (const auto& [buffer, its] : unlike)
        if (buffer.purpose == purpose && buffer.place == place)
          compare("  " + buffer.name, its.planned.value(), its.found.value(), bytes);
    });
    if (place == Place::device) compare("total", memory.total().value(), measured.peak.total.value(), bytes);
  });

  Rows operations = {{"operations of one step", "predicted", "measured"}};
  compare_operations(comm, measured.operations, world, operations);
  for (const Way way : {Way::wire, Way::link, Way::disk}) {
    const Bytes planned = moved_bytes(comm, way, rank), found = moved_bytes(measured.operations, way, rank);
    if (way == Way::wire || planned.value() != 0 || found.value() != 0)
      compare(way == Way::wire ? "bytes sent" : "bytes " + sum_name(way), planned.value(), found.value(),
              operations);
  }
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

std::string format_timetable(const Timetable& timetable) {
  std::string text;
  Rows rows = {{"time of a step", timetable.length, "idle"}};
  for (const Timetable::Row& row : timetable.rows)
    rows.push_back({row.name, fmt::format("{:.2f} ms", 1e3 * row.seconds),
                    fmt::format("{:.1f} %", 1e2 * row.idle), row.from});
  if (!timetable.rows.empty()) text += table(rows);
  if (!timetable.shares.empty()) text += table(rows_of(timetable.shares));
  if (timetable.versions.empty()) return text;
  Rows read = {{"updates behind", "of forward", "of backward", "how many micro-batches"}};
  for (std::size_t rank = 0; rank < timetable.versions.size(); ++rank)
    read.push_back({fmt::format("rank {}", rank), behind(timetable.versions[rank].forward),
                    behind(timetable.versions[rank].backward)});
  return text + table(read);
}

bool as_predicted(const MemoryPlan& memory, const CommPlan& comm, const Measured& measured) {
  return bytes_of(memory) == measured.peak && comm == measured.operations;
}

}  // namespace sc

#include "common/records/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace sc {
namespace {

using Json = nlohmann::json;
using Clock = Trace::Clock;

const Clock::time_point kOrigin = Clock::time_point(std::chrono::hours(1));
Clock::time_point at_us(int us) { return kOrigin + std::chrono::microseconds(us); }

/// The text of the trace file that a run with this one rank writes.
std::string file_of(const Trace& trace) {
  const std::string text = trace.serialise();
  return merge_traces(std::span(&text, 1));
}

OpSpan operation(std::int64_t number, int issued, int ended, int wait_began, int wait_ended) {
  OpSpan op;
  op.number = number;
  op.phase = Phase::train;
  op.step = 3;
  op.op = {CommKind::all_reduce, DType::f32, Elements(1000)};
  op.sent = Bytes(4000);
  op.issued = at_us(issued);
  op.ended = at_us(ended);
  op.wait_began = at_us(wait_began);
  op.wait_ended = at_us(wait_ended);
  return op;
}

struct Event {
  std::string name;
  double begin, end;
  bool operator==(const Event&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Event& e) {
  return out << e.name << " " << e.begin << " to " << e.end;
}

// A parsed trace: events by (pid, tid) in the file's order, and the names of the rows.
struct Parsed {
  std::map<std::pair<int, int>, std::vector<Event>> rows;
  std::map<std::pair<int, int>, std::string> row_names;
  std::map<int, std::string> ranks;
  explicit Parsed(const std::string& text) {
    const Json json = Json::parse(text);
    for (const Json& e : json.at("traceEvents")) {
      const std::pair<int, int> row(e.at("pid"), e.at("tid"));
      if (e.at("ph") == "X") {
        const double begin = e.at("ts"), duration = e.at("dur");
        EXPECT_GE(duration, 0);
        EXPECT_TRUE(row_names.contains(row)) << "a row is named before its events";
        rows[row].push_back({e.at("name"), begin, begin + duration});
      } else if (e.at("name") == "thread_name") {
        row_names[row] = e.at("args").at("name");
      } else if (e.at("name") == "process_name") {
        ranks[row.first] = e.at("args").at("name");
      }
    }
  }
  [[nodiscard]] std::vector<Event> lane(int rank, const std::string& name) const {
    for (const auto& [row, label] : row_names) {
      if (row.first == rank && label == name && rows.contains(row)) return rows.at(row);
    }
    return {};
  }
};

// Trace viewers require spans in order of their beginning, each inside the open span or after it.
void expect_drawable(const Parsed& parsed) {
  for (const auto& [row, events] : parsed.rows) {
    std::vector<double> open;
    double last = -1e300;
    for (const Event& e : events) {
      EXPECT_GE(e.begin, last);
      last = e.begin;
      while (!open.empty() && open.back() <= e.begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(e.end, open.back()) << parsed.row_names.at(row) << ": " << e.name;
      }
      open.push_back(e.end);
    }
  }
}

// In a GPU's step the host prepares, the GPU computes, and the GPU waits for an operation at the end of its
// work.
TEST(Trace, OnAGpuComputeIsTheGpusTimeWithoutItsWaits) {
  OpSpan op = operation(1, 120, 900, 700, 900);
  op.began = at_us(300);
  Trace trace(Rank{0}, kOrigin);
  const Trace::Step step{3, at_us(100), at_us(1000), std::pair(at_us(200), at_us(950))};
  trace.add_run(std::span(&step, 1), std::span(&op, 1));
  const Parsed parsed(file_of(trace));
  expect_drawable(parsed);
  EXPECT_EQ(parsed.lane(0, "compute"),
            (std::vector<Event>{{"step 3", 100, 1000}, {"compute", 200, 700}, {"compute", 900, 950}}));
  EXPECT_EQ(parsed.lane(0, "communication"), (std::vector<Event>{{"all_reduce of 1,000 f32", 300, 900}}));
}

TEST(Trace, PutsAllRanksIntoOneFile) {
  std::vector<std::string> parts;
  for (int rank : {1, 0}) {
    Trace trace(Rank{rank}, kOrigin);
    trace.add(Lane::compute, "forward", at_us(10), at_us(30 + rank));
    parts.push_back(trace.serialise());
  }
  const Parsed parsed(merge_traces(parts));
  EXPECT_EQ(parsed.ranks, (std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}}));
  for (const int rank : {0, 1})
    EXPECT_EQ(parsed.lane(rank, "compute"), (std::vector<Event>{{"forward", 10, 30.0 + rank}}));
  // Every rank has three rows in the trace, also rows without events.
  EXPECT_EQ(parsed.row_names.size(), 6U);
}

TEST(Trace, OfNobodyIsStillJson) { EXPECT_TRUE(Json::parse(merge_traces({})).at("traceEvents").empty()); }

// A step from 0 to 100 us: an operation in flight from 10 to 60, waited for from 40 to 62; the rest is
// compute.
TEST(Trace, ShowsOperationsWaitsAndWhatIsLeft) {
  Trace trace(Rank{0}, kOrigin);
  const std::vector<Trace::Step> steps = {{3, at_us(0), at_us(100)}};
  const std::vector<OpSpan> operations = {operation(7, 10, 60, 40, 62)};
  trace.add_run(steps, operations);
  const std::string text = file_of(trace);
  const Parsed parsed(text);
  expect_drawable(parsed);
  EXPECT_EQ(parsed.lane(0, "compute"),
            (std::vector<Event>{{"step 3", 0, 100}, {"compute", 0, 40}, {"compute", 62, 100}}));
  EXPECT_EQ(parsed.lane(0, "wait"), (std::vector<Event>{{"wait for all_reduce of 1,000 f32", 40, 62}}));
  EXPECT_EQ(parsed.lane(0, "communication"), (std::vector<Event>{{"all_reduce of 1,000 f32", 10, 60}}));
  EXPECT_NE(text.find("\"bytes this rank sends\":\"4,000\""), std::string::npos) << text;
}

TEST(Trace, NamesWhatAnOperationCarries) {
  Trace trace(Rank{0}, kOrigin);
  OpSpan gradients = operation(1, 10, 60, 40, 62);
  gradients.op.purpose = OpPurpose::gradients, gradients.op.unit = 7;
  trace.add_run({}, {&gradients, 1}, {}, 13);
  ASSERT_EQ(trace.spans().size(), 2U);
  EXPECT_EQ(trace.spans()[0].name, "all_reduce of block 7's gradients (1,000 f32)");
  EXPECT_EQ(trace.spans()[1].name, "wait for all_reduce of block 7's gradients (1,000 f32)");
}

TEST(Trace, NamesWhatIsComputed) {
  Trace trace(Rank{0}, kOrigin);
  const std::vector<Trace::Step> steps = {{0, at_us(0), at_us(90)}, {1, at_us(100), at_us(190)}};
  const auto pass = [](std::int64_t step, const Computed& computed, int begin, int end) {
    return Timeline::Span{
        .name = "", .computed = computed, .step = step, .begin = at_us(begin), .end = at_us(end)};
  };
  const std::vector<Timeline::Span> marks = {pass(0, {Pass::forward, 0, 0}, 10, 20),
                                             pass(0, {Pass::backward_weights, 7, 1}, 20, 40),
                                             pass(0, {Pass::update, 13}, 50, 60)};
  trace.add_run(steps, {}, marks, 13);
  std::vector<std::string> names;
  for (const TraceSpan& span : trace.spans()) {
    EXPECT_EQ(span.lane, Lane::compute);
    names.push_back(span.name);
  }
  // A step without marks is shown as a single span of compute.
  EXPECT_EQ(names, (std::vector<std::string>{
                       "step 0", "step 1", "compute", "forward of the embedding, micro-batch 0",
                       "backward_weights of block 7, micro-batch 1", "update of the head"}));
}

TEST(Trace, CutsWaitsOutWhereverTheyLie) {
  Trace trace(Rank{0}, kOrigin);
  // Waits before a step, across its beginning, inside it (two that overlap on two threads, and two back to
  // back), across its end, and after it.
  const std::vector<OpSpan> operations = {operation(1, 0, 5, 1, 5),    operation(2, 0, 12, 8, 12),
                                          operation(3, 0, 30, 20, 30), operation(4, 0, 35, 25, 35),
                                          operation(5, 0, 40, 35, 40), operation(6, 0, 55, 45, 55),
                                          operation(7, 0, 70, 60, 70)};
  const std::vector<Trace::Step> steps = {{0, at_us(10), at_us(50)}};
  trace.add_run(steps, operations);
  std::vector<std::pair<double, double>> compute;
  for (const TraceSpan& span : trace.spans()) {
    if (span.name == "compute") compute.emplace_back(span.begin_us, span.begin_us + span.duration_us);
  }
  EXPECT_EQ(compute, (std::vector<std::pair<double, double>>{{12, 20}, {40, 45}}));
}

TEST(Trace, UsesTheWaitWhereTheTransportDoesNotKnowTheEnd) {
  Trace trace(Rank{0}, kOrigin);
  OpSpan unknown = operation(1, 10, 0, 20, 50), never = operation(2, 12, 0, 0, 0);
  unknown.ended.reset();
  never.ended.reset();
  never.wait_began.reset();
  never.wait_ended.reset();
  const std::vector<OpSpan> operations = {unknown, never};
  trace.add_run({}, operations);
  ASSERT_EQ(trace.spans().size(), 2U);  // the first one's operation and wait
  EXPECT_EQ(trace.spans()[0].lane, Lane::communication);
  EXPECT_DOUBLE_EQ(trace.spans()[0].duration_us, 40);
}

// Of three operations in flight at once none may be drawn inside another, even where one ends within
// another's time.
TEST(Trace, OperationsInFlightTogetherTakeRowsOfTheirOwn) {
  Trace trace(Rank{0}, kOrigin);
  const std::vector<OpSpan> operations = {operation(1, 0, 40, 41, 42), operation(2, 10, 60, 61, 62),
                                          operation(3, 20, 30, 63, 64), operation(4, 45, 50, 65, 66)};
  trace.add_run({}, operations);
  const Parsed parsed(file_of(trace));
  expect_drawable(parsed);
  EXPECT_EQ(parsed.lane(0, "communication").size(), 2U);  // the first and the fourth
  EXPECT_EQ(parsed.lane(0, "communication 2").size(), 1U);
  EXPECT_EQ(parsed.lane(0, "communication 3").size(), 1U);
}

TEST(Trace, RandomSpansStayDrawableAndNoneIsLost) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 50; ++trial) {
    Trace trace(Rank{0}, kOrigin);
    std::map<std::string, int> added, found;
    for (int i = 0; i < 60; ++i) {
      const int begin = static_cast<int>(random() % 50), length = static_cast<int>(random() % 20);
      const auto lane = static_cast<Lane>(random() % 3);
      const std::string name = std::to_string(begin) + "+" + std::to_string(length);
      trace.add(lane, name, at_us(begin), at_us(begin + length));
      ++added[name];
    }
    const Parsed parsed(file_of(trace));
    expect_drawable(parsed);
    for (const auto& row : parsed.rows) {
      for (const Event& e : row.second) ++found[e.name];
    }
    EXPECT_EQ(found, added);
  }
}

TEST(Trace, CountsWhatItLeavesOut) {
  Trace trace(Rank{2}, kOrigin, 3);
  for (int i = 0; i < 5; ++i) trace.add(Lane::compute, "x", at_us(i), at_us(i + 1));
  EXPECT_EQ(trace.left_out(), 2);
  const Parsed parsed(file_of(trace));
  EXPECT_EQ(parsed.lane(2, "compute").size(), 3U);
  EXPECT_EQ(parsed.ranks.at(2), "rank 2 (2 spans left out)");
}

TEST(Trace, EscapesNames) {
  Trace trace(Rank{0}, kOrigin);
  trace.add(Lane::compute, "a \"quoted\"\nline \xff", at_us(0), at_us(1));
  EXPECT_EQ(Parsed(file_of(trace)).lane(0, "compute").at(0).name, "a \"quoted\"\nline \xef\xbf\xbd");
}

}  // namespace
}  // namespace sc

// Tests board and watchdog with ranks as threads: the rank named, one message only, no message while a job
// moves.
#include "common/watch/watchdog.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "common/base/check.h"
#include "common/watch/process_alive.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

using namespace std::chrono_literals;

const Operation kSum{CommKind::all_reduce, DType::f32, Elements(1000)};
const OutstandingOp kWait{9, kSum, {}, true, Phase::train, 4};

/// Makes a rank join the board with a heartbeat and `operations` issued.
void alive(ProgressBoard& board, Rank rank, std::int64_t operations, bool waiting) {
  board.join(rank);
  board.set_position(rank, Phase::train, operations / 2);
  if (operations > 0) board.set_issued(rank, operations, kSum);
  if (waiting) board.add_waiting(rank, 1);
}

/// A board whose ranks have all joined, with the given operations and waits.
struct BoardOf : ProgressBoard {
  struct Row {
    std::int64_t operations;
    bool waits;
    Meeting meeting = {};
  };
  explicit BoardOf(const std::vector<Row>& rows) : ProgressBoard(WorldSize{static_cast<int>(rows.size())}) {
    int rank = 0;
    for (const Row& row : rows) {
      alive(*this, Rank{rank}, row.operations, row.waits);
      set_meeting(Rank{rank++}, row.meeting);
    }
  }
};

std::string report(const ProgressBoard& board, const std::optional<OutstandingOp>& op = kWait) {
  return describe_hang(board, Rank{0}, op, 30s, 5s);
}

/// The beginning of a report up to the colon, e.g. "lost rank 1".
std::string head_of(const std::string& text) { return text.substr(0, text.find(':')); }

std::string pid() { return std::to_string(::getpid()); }

TEST(HangReport, NamesTheRankThatDoesNotCome) {
  BoardOf board({{9, true}, {8, false}, {9, true}});
  EXPECT_EQ(
      report(board),
      "lost rank 1: rank 0 waits for its operation 9 (all_reduce of 1,000 f32, train step 4) for more "
      "than 30 s\n"
      "  rank 1: process " +
          pid() +
          " is alive, but does not come to the next operation; last operation 8 (all_reduce of 1,000 "
          "f32), train step 4\n"
          "  fix: see what it does there; a rank that is only slow needs a longer --watchdog (now 30 s)");
}

TEST(Descriptions, SayWhatAnOperationCarriesAndOfWhichUnit) {
  const auto sum_of = [](const What& what, int stride = 1) {
    return Operation{CommKind::all_reduce, DType::f32, Elements(50'048), WorldSize{2}, stride,
                     what.purpose,         what.unit};
  };
  const What seventh{OpPurpose::gradients, 7}, head{OpPurpose::gradients, 13};
  const Operation message{CommKind::send, DType::bf16, Elements(8),
                          WorldSize{4},   1,           OpPurpose::activation_gradients};
  test::expect_texts(
      {{describe(sum_of({}), 13), "all_reduce of 50,048 f32"},
       {describe(sum_of({OpPurpose::gradients}), 13), "all_reduce of gradients (50,048 f32)"},
       {describe(sum_of(seventh), 13), "all_reduce of block 7's gradients (50,048 f32)"},
       {describe(sum_of(seventh)), "all_reduce of unit 7's gradients (50,048 f32)"},
       {describe(sum_of({OpPurpose::gradients, 0}), 13),
        "all_reduce of the embedding's gradients (50,048 f32)"},
       {describe(sum_of(head), 13), "all_reduce of the head's gradients (50,048 f32)"},
       {describe(sum_of(head), WorldSize{2}), "all_reduce of unit 13's gradients (50,048 f32)"},
       {describe(sum_of(head, 3), WorldSize{8}),
        "all_reduce of unit 13's gradients (50,048 f32), 2 ranks, 3 apart"},
       {describe(message), "send of activation gradients (8 bf16)"}});
}

TEST(HangReport, NamesWhatIsMissing) {
  BoardOf board({{9, true}, {8, false}});
  board.set_last_unit(13);
  Operation last = kSum, gradient = kSum;
  last.purpose = OpPurpose::sums;
  gradient.purpose = OpPurpose::gradients, gradient.unit = 7;
  board.set_issued(Rank{1}, 8, last);
  test::expect_parts(report(board, OutstandingOp{9, gradient, {}, true, Phase::train, 4}),
                     {"its operation 9 (all_reduce of block 7's gradients (1,000 f32), train step 4)",
                      "last operation 8 (all_reduce of sums (1,000 f32)), train step 4"});
}

// Two stages of two data ranks of two tensor ranks. A place omits axes of a single rank, and a mesh of one
// axis adds nothing to the rank's number.
TEST(HangReport, NamesARanksPlaceInAMesh) {
  ProgressBoard board(WorldSize{8});
  board.set_mesh(Mesh(WorldSize{8}, {{Axis::stages, 2}, {Axis::tensor, 2}}));
  for (int r = 0; r < 8; ++r) alive(board, Rank{r}, r == 5 || r == 6 ? 8 : 9, r != 5 && r != 6);
  const std::string text = report(board);
  EXPECT_EQ(
      text.substr(0, text.find(" waits for")),
      "lost ranks 5 (stage 1, data rank 0, tensor rank 1), 6 (stage 1, data rank 1, tensor rank 0): rank 0 "
      "(stage 0, data rank 0, tensor rank 0)");
  EXPECT_NE(text.find("\n  rank 5: process " + pid()), std::string::npos) << text;
  const auto named = [](int world, int stages, int tensor, int rank) {
    ProgressBoard of(WorldSize{world});
    of.set_mesh(Mesh(WorldSize{world}, {{Axis::stages, stages}, {Axis::tensor, tensor}}));
    return of.name_of(Rank{rank});
  };
  test::expect_texts({{named(4, 2, 2, 3), "3 (stage 1, tensor rank 1)"},
                      {named(6, 3, 1, 3), "3 (stage 1, data rank 1)"},
                      {named(6, 1, 3, 4), "4 (data rank 1, tensor rank 1)"},
                      {named(4, 4, 1, 3), "3"},
                      {named(4, 1, 4, 3), "3"},
                      {ProgressBoard(WorldSize{4}).name_of(Rank{3}), "3"}});
}

// If all ranks wait, the report lists each rank with its place in the mesh.
TEST(HangReport, PlacesOfRanksThatAllWait) {
  BoardOf board({{9, true}, {9, true}, {9, true}, {9, true}});
  board.set_mesh(Mesh(WorldSize{4}, {{Axis::stages, 2}, {Axis::tensor, 2}}));
  EXPECT_NE(report(board).find("\n  rank 2 (stage 1, tensor rank 0): last operation 9"), std::string::npos)
      << report(board);
}

TEST(HangReport, ADeadProcessComesFirst) {
  const pid_t child = ::fork();
  if (child == 0) {
    ProgressBoard gone(::testing::TempDir() + "dead_" + std::to_string(::getppid()), WorldSize{3});
    alive(gone, Rank{2}, 8, false);
    ::_exit(0);
  }
  ::siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(process_alive(child)) << "a zombie is not alive";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(process_alive(child));
  EXPECT_TRUE(process_alive(::getpid()));
  ProgressBoard board(::testing::TempDir() + "dead_" + pid(), WorldSize{3});
  board.remove_file();
  alive(board, Rank{0}, 9, true);
  alive(board, Rank{1}, 1, false);  // behind, too, but a dead rank explains that
  const std::string lost =
      "\n  rank 2: process " + std::to_string(child) +
      " is gone; last operation 8 (all_reduce of 1,000 f32), train step 4\n  fix: look above";
  EXPECT_EQ(report(board).substr(0, 24), "lost rank 2: rank 0 wait");
  EXPECT_NE(report(board).find(lost), std::string::npos) << report(board);
  EXPECT_EQ(report(board, std::nullopt).find("lost rank 2: noticed by rank 0" + lost), 0u)
      << report(board, std::nullopt);
}

// Operations inside a graph cannot be told apart, so the report names the graph, unless a rank is gone.
TEST(HangReport, AllWaitInAGraph) {
  const OutstandingOp graph{.number = 9,
                            .op = {CommKind::all_reduce, DType::f64, Elements(4)},
                            .with = {},
                            .waiting = true,
                            .phase = Phase::train,
                            .step = 4,
                            .replayed = true};
  BoardOf board({{9, true}, {8, true}});  // a stage that has fewer operations
  const std::string text = report(board, graph);
  EXPECT_EQ(text.substr(0, text.find(" has")),
            "every rank waits in the graph of a step: rank 0's of train step 4");
  EXPECT_NE(text.find("fix: --graph off"), std::string::npos) << text;
  alive(board, Rank{1}, 7, false);
  EXPECT_EQ(report(board, graph).substr(0, 11), "lost rank 1");
}

// A rank that waits for its own disk waits for no other rank, whatever the others do.
TEST(HangReport, ADiskIsTheRanksOwn) {
  const OutstandingOp read{9, {CommKind::disk_read, DType::f32, Elements(1024)}, {}, true, Phase::train, 4};
  for (const bool waiting : {false, true}) {
    BoardOf board({{9, true}, {7, waiting}});
    EXPECT_EQ(
        report(board, read),
        "rank 0 is stuck: its operation 9 (disk_read of 1,024 f32, train step 4) has not ended for more "
        "than 30 s\n"
        "  fix: see whether the disk still answers (dmesg); one that is only slow needs a longer "
        "--watchdog (now 30 s)");
  }
}

TEST(HangReport, RanksThatEndedOrAreElsewhere) {
  ProgressBoard board(WorldSize{3});
  alive(board, Rank{0}, 9, true);
  alive(board, Rank{1}, 9, true);
  EXPECT_NE(report(board).find("\n  rank 2: on another host, its state is not known here"), std::string::npos)
      << report(board);
  alive(board, Rank{2}, 5, false);
  board.leave(Rank{2});
  EXPECT_NE(report(board).find("rank 2: process " + pid() + " has ended; last operation 5"),
            std::string::npos)
      << report(board);
}

TEST(HangReport, AMessageNamesItsPeer) {
  BoardOf board({{9, true}, {1, false}});
  const OutstandingOp receive{
      9, {CommKind::recv, DType::bf16, Elements(8)}, {{}, Rank{1}, 0}, true, Phase::eval, 4};
  EXPECT_NE(report(board, receive).find("operation 9 (recv of 8 bf16 from rank 1, eval step 4)"),
            std::string::npos);
}

Meeting message(Rank peer) { return {{0, 4, 1}, peer, 0}; }
constexpr RankSet kEven{0, 2, 2}, kOdd{1, 2, 2};  // of four ranks

TEST(HangReport, NamesWhoIsMissing) {
  struct Case {
    std::string what;
    std::vector<BoardOf::Row> ranks;
    std::string head;
    std::vector<std::string> says = {};
  };
  const Case all[] = {
      {"several that compute",
       {{9, true}, {0, false}, {3, false}},
       "lost ranks 1, 2",
       {"rank 1: process " + pid() +
        " is alive, but does not come to the next operation; no operation yet, train step 0"}},
      {"all wait, so they disagree",
       {{9, true}, {9, true}},
       "every rank waits, so the ranks did not issue the same operations",
       {"operations: rank 0"}},
      {"of ranks that wait the one behind",
       {{9, true}, {7, true}, {8, true}},
       "lost rank 1",
       {"is alive and waits for another operation; last operation 7"}},
      {"stage 2 has stopped computing; stage 0, at the end of the pipeline, has the fewest operations by "
       "nature",
       {{9, true, message(Rank{1})}, {17, true, message(Rank{2})}, {16, false}, {8, true, message(Rank{2})}},
       "lost rank 2"},
      {"a ring of messages is a deadlock, in which rank 0 is not",
       {{3, true, message(Rank{1})},
        {17, true, message(Rank{2})},
        {18, true, message(Rank{3})},
        {9, true, message(Rank{1})}},
       "every rank of a ring waits for the next one, so none of them ever goes on",
       {"\n  rank 1 waits for rank 2: last operation 17",
        "\n  rank 2 waits for rank 3: ", "\n  rank 3 waits for rank 1: "}},
      {"two groups, one of whose members waits in another collective than the other one",
       {{30, true, {kEven, {}, 5}},
        {40, true, {kOdd, {}, 7}},
        {9, true, message(Rank{3})},
        {8, true, {kOdd, {}, 6}}},
       "every rank of a ring waits for the next one, so none of them ever goes on",
       {"\n  rank 3 waits for rank 1: ", "\n  rank 1 waits for rank 3: "}}};
  for (const auto& [what, ranks, head, says] : all) {
    const std::string text = report(BoardOf(ranks));
    EXPECT_EQ(head_of(text), head) << what;
    SCOPED_TRACE(what);
    test::expect_parts(text, says);
    EXPECT_EQ(text.find("rank 0 waits for rank"), std::string::npos) << what;
  }
}

// The report repeats each rank's text about its current action, cut to the room that the board has.
TEST(HangReport, NamesTheActionsOfARing) {
  BoardOf board({{3, true, message(Rank{1})}, {17, true, message(Rank{2})}, {18, true, message(Rank{1})}});
  for (const int r : {1, 2}) board.set_position(Rank{r}, Phase::train, 4);
  board.set_doing(Rank{1}, "stage 1, action 7: SA1");
  board.set_doing(Rank{2}, std::string(200, 'x'));
  test::expect_parts(report(board),
                     {"\n  rank 1, stage 1, action 7: SA1, waits for rank 2: last",
                      "\n  rank 2, " + std::string(ProgressBoard::kMostDoing, 'x') + ", waits for rank 1: "});
  board.set_position(Rank{1}, Phase::eval, 4);
  EXPECT_NE(report(board).find("\n  rank 1 waits for rank 2: "), std::string::npos)
      << "of the last training step";
  board.set_position(Rank{1}, Phase::train, 4);
  board.add_waiting(Rank{1}, -1);
  EXPECT_NE(report(board).find("train step 4, stage 1, action 7: SA1"), std::string::npos) << report(board);
}

TEST(HangReport, NamesTheFileThatIsWritten) {
  BoardOf board({{9, true}, {8, false}});
  board.set_doing(Rank{1}, "writes ck/step-000005");
  EXPECT_NE(
      report(board).find("train step 4, writes ck/step-000005\n  fix: see whether the disk still answers"),
      std::string::npos)
      << report(board);
  board.set_position(Rank{1}, Phase::check, 4);
  EXPECT_NE(report(board).find("check step 4, writes ck/step-000005\n"), std::string::npos) << report(board);
}

TEST(RankSet, NamesWhatIsEvenlySpaced) {
  const auto of = [](std::initializer_list<int> ranks) {
    std::vector<Rank> members;
    for (const int r : ranks) members.push_back(Rank{r});
    return RankSet::of(members);
  };
  EXPECT_EQ(of({3}), (RankSet{3, 1, 1}));
  EXPECT_EQ(of({2, 5, 8}), (RankSet{2, 3, 3}));
  EXPECT_TRUE(of({2, 5, 8}).contains(Rank{8}));
  for (const int r : {0, 3, 11}) EXPECT_FALSE(of({2, 5, 8}).contains(Rank{r})) << r;
  EXPECT_EQ(of({0, 1, 3}).count, 0);
  EXPECT_EQ(of({1, 0}).count, 0);
}

TEST(HangReport, NoHeartbeat) {
  BoardOf board({{9, true}, {9, true}});
  std::this_thread::sleep_for(20ms);
  const std::string text = describe_hang(board, Rank{0}, kWait, 30s, 10ms);
  EXPECT_EQ(head_of(text), "lost rank 1");
  EXPECT_NE(text.find("has stopped (no heartbeat for 0."), std::string::npos) << text;
}

/// Counts a watchdog's messages, aborts and exits instead of ending the process.
struct Ending {
  std::atomic<int> messages = 0, aborts = 0, exits = 0, code = -1;
  std::mutex mutex;
  std::string text;
  WatchdogOptions options(std::chrono::milliseconds limit) {
    WatchdogOptions o;
    o.limit = limit;
    o.last_words = std::chrono::milliseconds(20);
    o.print = [this](const std::string& message) {
      const std::lock_guard lock(mutex);
      text = message;
      ++messages;
    };
    o.abort = [this] { ++aborts; };
    o.exit = [this](int exit_code) {
      code = exit_code;
      ++exits;
    };
    return o;
  }
  void await_exits(int n) const {
    while (exits < n) std::this_thread::sleep_for(5ms);
  }
};

TEST(Watchdog, SpeaksOnceAndAllEnd) {
  ProgressBoard board(WorldSize{3});
  Ending ending;
  const auto waits = [] { return std::vector<OutstandingOp>{kWait}; };
  const auto computes = [] { return std::vector<OutstandingOp>{}; };
  Watchdog zero(board, Rank{0}, waits, ending.options(200ms)),
      one(board, Rank{1}, computes, ending.options(200ms)), two(board, Rank{2}, waits, ending.options(200ms));
  board.add_waiting(Rank{0}, 1);
  board.add_waiting(Rank{2}, 1);
  ending.await_exits(2);
  test::expect_counts({{ending.messages, 1}, {ending.aborts, 2}, {ending.exits, 2}, {ending.code, 75}});
  EXPECT_EQ(head_of(ending.text), "lost rank 1");
}

TEST(Watchdog, OperationsThatChangeAreProgress) {
  ProgressBoard board(WorldSize{2});
  Ending ending;
  std::atomic<std::int64_t> number = 0;
  const auto moves = [&] {
    OutstandingOp op = kWait;
    op.number = ++number;  // another one at every look
    return std::vector<OutstandingOp>{op};
  };
  {
    Watchdog dog(board, Rank{0}, moves, ending.options(50ms));
    while (number < 40) std::this_thread::sleep_for(5ms);
    EXPECT_FALSE(board.read(Rank{0}).left);
  }
  EXPECT_TRUE(board.read(Rank{0}).left);
  EXPECT_EQ(ending.exits, 0);
}

// Ten transfers are issued at once and one ends every 100 ms: together they take two and a half times the
// limit.
TEST(Watchdog, TransfersThatWaitTheirTurnAreNoHang) {
  ProgressBoard board(WorldSize{1});
  Ending ending;
  const auto begin = std::chrono::steady_clock::now();
  const auto queued = [&] {
    std::vector<OutstandingOp> ops;
    for (auto left = 10 - (std::chrono::steady_clock::now() - begin) / 100ms; left > 0; --left)
      ops.insert(ops.begin(),
                 {11 - left, {CommKind::disk_read, DType::f32, Elements(8)}, {}, true, Phase::train, 4});
    return ops;
  };
  Watchdog dog(board, Rank{0}, queued, ending.options(400ms));
  dog.step_begin(4);
  std::this_thread::sleep_for(1000ms);
  EXPECT_EQ(ending.exits, 0);
  ending.await_exits(1);  // nothing moves any more
  EXPECT_EQ(ending.code, 75);
}

TEST(Watchdog, AStepOfAWorldOfOneThatStandsStill) {
  ProgressBoard board(WorldSize{1});
  Ending ending;
  Watchdog dog(board, Rank{0}, {}, ending.options(200ms));
  board.set_position(Rank{0}, Phase::train, 6);
  dog.step_begin(6);
  ending.await_exits(1);
  EXPECT_EQ(ending.code, 75);
  EXPECT_EQ(ending.text,
            "rank 0 is stuck: nothing has moved for more than 0.2 s in train step 6\n  no operation yet, "
            "train step 6\n"
            "  fix: see what it does there; a rank that is only slow needs a longer --watchdog (now 0.2 s)");
}

// Ten moves within twice the limit are slow and no hang, for the moving rank and for a rank that waits for
// it.
TEST(Watchdog, WhoMovesIsSlow) {
  ProgressBoard board(WorldSize{2});
  Ending ending;
  WatchdogOptions alone = ending.options(1s);
  alone.step_limit = 400ms;
  Watchdog zero(
      board, Rank{0}, [] { return std::vector<OutstandingOp>{kWait}; }, ending.options(400ms));
  Watchdog one(board, Rank{1}, {}, alone);
  board.add_waiting(Rank{0}, 1);
  one.step_begin(4);
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(80ms);
    one.moved();
  }
  EXPECT_EQ(ending.exits, 0);
  ending.await_exits(2);  // nothing moves any more
  EXPECT_EQ(ending.code, 75);
}

TEST(Watchdog, OutsideAStepNothingIsStuck) {
  ProgressBoard board(WorldSize{1});
  Ending ending;
  Watchdog dog(board, Rank{0}, {}, ending.options(20ms));
  dog.step_begin(1);
  dog.step_end();
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(ending.exits, 0);
}

TEST(Watchdog, IsSilentWhenAnotherSpeaks) {
  ProgressBoard board(WorldSize{2});
  Ending ending;
  EXPECT_TRUE(board.claim());
  EXPECT_FALSE(board.claim());
  board.set_reported(70);
  Watchdog dog(
      board, Rank{0}, [] { return std::vector<OutstandingOp>{kWait}; }, ending.options(50ms));
  ending.await_exits(1);
  EXPECT_EQ(ending.messages, 0);
}

TEST(Board, IsSharedThroughAFile) {
  const std::string path = ::testing::TempDir() + "board_" + pid();
  ProgressBoard one(path, WorldSize{2}), other(path, WorldSize{2});
  one.join(Rank{1});
  Operation last = kSum;
  last.stride = 3, last.purpose = OpPurpose::parameters, last.unit = 4;
  one.set_issued(Rank{1}, 5, last);
  one.set_last_unit(5);
  one.set_position(Rank{1}, Phase::eval, 3);
  one.add_waiting(Rank{1}, 1);
  const RankProgress seen = other.read(Rank{1});
  EXPECT_EQ(seen.pid, ::getpid());
  EXPECT_EQ(seen.operations, 5);
  EXPECT_TRUE(seen.last == last);
  EXPECT_EQ(seen.last_unit, 5);
  EXPECT_EQ(seen.phase, Phase::eval);
  EXPECT_EQ(seen.step, 3);
  EXPECT_TRUE(seen.waiting);
  EXPECT_EQ(other.read(Rank{0}).pid, 0);
  EXPECT_FALSE(other.read(Rank{0}).last.has_value());
  EXPECT_TRUE(other.claim());
  EXPECT_FALSE(one.claim());
  EXPECT_THROW(ProgressBoard(path, WorldSize{3}), DeviceError);
  one.remove_file();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(other.read(Rank{1}).operations, 5);
  EXPECT_THROW(ProgressBoard("/nonexistent/board", WorldSize{2}), DeviceError);
}

}  // namespace
}  // namespace sc

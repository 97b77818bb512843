// Tests the host pool; under the thread sanitizer too, since chunks write and waiters read the same memory
// without atomics.
#include "common/base/host_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace sc {
namespace {

using Piece = std::shared_ptr<const HostPiece>;

std::string thrown_by(const HostPiece& piece) {
  try {
    piece.wait();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(HostPool, WorksOnEveryElementOnce) {
  for (const int threads : {1, 2, 5}) {
    HostPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const std::int64_t n : {0, 1, 63, 64, 65, 1000}) {
      for (const std::int64_t chunk : {1, 7, 64, 5000}) {
        std::vector<int> count(static_cast<std::size_t>(n));
        const auto work = [&](std::int64_t begin, std::int64_t end) {
          EXPECT_EQ(begin % chunk, 0);
          EXPECT_EQ(end, std::min(n, begin + chunk));
          for (std::int64_t i = begin; i < end; ++i) ++count[static_cast<std::size_t>(i)];
        };
        const Piece piece = pool.post(n, work, chunk);
        piece->wait();
        EXPECT_TRUE(piece->done());
        EXPECT_LE(piece->began_at(), piece->ended_at());
        EXPECT_EQ(count, std::vector<int>(static_cast<std::size_t>(n), 1)) << n << " by " << chunk;
      }
    }
  }
}

// If the pool had a barrier after each piece, this test would never end.
TEST(HostPool, GoesOnToTheNextPieceWhileAChunkIsBusy) {
  HostPool pool(2);
  std::promise<void> second_done;
  const auto first = [&, end = second_done.get_future().share()](std::int64_t begin, std::int64_t) {
    if (begin == 0) end.wait();
  };
  const Piece a = pool.post(3, first, 1), b = pool.post(
                                              3, [](std::int64_t, std::int64_t) {}, 1);
  b->wait();
  EXPECT_FALSE(a->done());
  second_done.set_value();
  a->wait();
}

TEST(HostPool, TakesPiecesInTheirOrder) {
  HostPool pool(1);
  std::vector<int> order;
  Piece last;
  for (int i = 0; i < 20; ++i)
    last = pool.post(
        2, [&order, i](std::int64_t, std::int64_t) { order.push_back(i); }, 1);
  last->wait();
  ASSERT_EQ(order.size(), 40U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(HostPool, ServesSeveralThreads) {
  HostPool pool(3);
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&pool] {
      for (int round = 0; round < 50; ++round) {
        std::vector<int> values(100);
        const Piece piece = pool.post(
            100,
            [&](std::int64_t begin, std::int64_t end) { std::fill(&values[begin], &values[0] + end, 1); }, 9);
        const std::jthread other([&] {
          piece->wait();
          EXPECT_EQ(values.front(), 1);
        });
        piece->wait();
        EXPECT_EQ(std::count(values.begin(), values.end(), 1), 100);
      }
    });
  }
}

TEST(HostPool, ThrowsToWhoeverWaits) {
  HostPool pool(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> count(10);
    const Piece bad = pool.post(
        10,
        [&](std::int64_t begin, std::int64_t) {
          ++count[static_cast<std::size_t>(begin)];
          if (begin == 3) throw std::runtime_error("chunk 3");
        },
        1);
    const std::jthread other([&] { EXPECT_EQ(thrown_by(*bad), "chunk 3"); });
    EXPECT_EQ(thrown_by(*bad), "chunk 3");
    EXPECT_EQ(thrown_by(*bad), "chunk 3");
    EXPECT_TRUE(bad->done());
    EXPECT_EQ(count, std::vector<int>(10, 1));
    EXPECT_EQ(thrown_by(*pool.post(1, [](std::int64_t, std::int64_t) {})), "nothing");
  }
}

TEST(HostPool, LetsGoOfWhatTheWorkHolds) {
  HostPool pool(2);
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  const Piece piece = pool.post(
      4, [held = std::move(held)](std::int64_t, std::int64_t) {}, 1);
  piece->wait();
  EXPECT_TRUE(watched.expired());
}

TEST(HostPool, EndsWhenAllThatWasPostedIsDone) {
  std::vector<Piece> pieces;
  {
    HostPool pool(2);
    for (int i = 0; i < 100; ++i)
      pieces.push_back(pool.post(
          10, [](std::int64_t, std::int64_t) {}, 1));
  }
  for (const Piece& piece : pieces) EXPECT_TRUE(piece->done());
}

}  // namespace
}  // namespace sc

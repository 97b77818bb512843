#include <functional>

#include "lessons/12_context_parallel/exercise/skip_masked.h"
#include "tests/exercises/check.h"

namespace sc::exercise {
namespace {

constexpr int kTokens = 24;  // of a row; 2, 3 and 4 ranks cut it into equal chunks

/// Which tokens each token has met.
class Seen : public ChunkAttention {
 public:
  explicit Seen(const ContextCut& cut) : m_(kTokens / cut.chunks_of_row()), times_(kTokens * kTokens) {}
  void masked(int query, int key) override {
    meet(query, key, m_ * m_, [](int q, int k) { return k <= q; });
  }
  void whole(int query, int key) override {
    meet(query, key, m_ * m_, [](int, int) { return true; });
  }
  void diagonal(int query, int key) override {
    meet(query, key, m_ * (m_ + 1) / 2, [this](int q, int k) { return k % m_ <= q % m_; });
  }

  void require_causal(const std::vector<int>& chunks, const std::string& where) const {
    for (const int chunk : chunks)
      for (int q = chunk * m_; q < (chunk + 1) * m_; ++q)
        for (int k = 0; k < kTokens; ++k) {
          const int times = times_[static_cast<std::size_t>(q * kTokens + k)];
          require(times == (k <= q ? 1 : 0), where + "token " + std::to_string(q) + " has met token " +
                                                 std::to_string(k) + " " + std::to_string(times) + " times");
        }
  }
  std::int64_t scores = 0;

 private:
  void meet(int query, int key, int count, const std::function<bool(int, int)>& sees) {
    scores += count;
    for (int q = query * m_; q < (query + 1) * m_; ++q)
      for (int k = key * m_; k < (key + 1) * m_; ++k)
        times_.at(static_cast<std::size_t>(q * kTokens + k)) += sees(q, k) ? 1 : 0;
  }

  int m_;  // tokens of a chunk
  std::vector<int> times_;
};

void check_rank(const ContextCut& cut) {
  Seen seen(cut);
  attend(cut, seen);
  const std::string where = std::to_string(cut.ranks) + " ranks, " +
                            (cut.parts == Parts::zigzag ? "zigzag" : "contiguous") + ", rank " +
                            std::to_string(cut.rank) + ": ";
  seen.require_causal(cut.chunks_of(cut.rank), where);
  require(seen.scores == cut.token_pairs(kTokens),
          where + "right, but " + std::to_string(seen.scores) + " scores are computed; " +
              std::to_string(cut.token_pairs(kTokens)) + " are enough");
}

std::string check() {
  for (const Parts parts : {Parts::zigzag, Parts::contiguous})
    for (const int ranks : {2, 3, 4})
      for (int rank = 0; rank < ranks; ++rank) check_rank({rank, ranks, parts});
  return "2 to 4 ranks, zigzag and contiguous: every token has met those that it sees, and nothing else was "
         "computed";
}

}  // namespace

const Exercise kExercise{"skip_masked",
                         "of two chunks, all tokens of the later one come after all of the earlier one: only "
                         "a chunk with itself needs a mask",
                         check};

}  // namespace sc::exercise

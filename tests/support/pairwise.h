// Tables of settings in which every value of every option meets every value of every other one: as many runs
// as the two longest options have pairs, and a few more, instead of their whole product.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sc::test {

/// One setting: by option, the index of its value.
using PairwiseRow = std::vector<int>;

/// Pairs that rows hold already, each in both orders: an option and its value, another option and its value.
using PairsHeld = std::set<std::array<std::size_t, 4>>;
inline std::array<std::size_t, 4> pair_of(std::size_t a, int value_a, std::size_t b, int value_b) {
  return {a, static_cast<std::size_t>(value_a), b, static_cast<std::size_t>(value_b)};
}

/// The first pair that is in no row yet, and -1 for all other options; empty: there is none.
inline PairwiseRow first_missing_pair(const std::vector<int>& counts, const PairsHeld& held) {
  for (std::size_t a = 0; a < counts.size(); ++a)
    for (std::size_t b = a + 1; b < counts.size(); ++b)
      for (int value_a = 0; value_a < counts[a]; ++value_a)
        for (int value_b = 0; value_b < counts[b]; ++value_b) {
          if (held.contains(pair_of(a, value_a, b, value_b))) continue;
          PairwiseRow row(counts.size(), -1);
          row[a] = value_a;
          row[b] = value_b;
          return row;
        }
  return {};
}

/// How many pairs with the options of `row` that are chosen already would be new.
inline int new_pairs(const PairwiseRow& row, std::size_t option, int value, const PairsHeld& held) {
  int pairs = 0;
  for (std::size_t other = 0; other < row.size(); ++other)
    pairs += row[other] >= 0 && !held.contains(pair_of(option, value, other, row[other])) ? 1 : 0;
  return pairs;
}

/// Rows that together hold every pair of values of every two options. The same counts give the same rows.
/// Each row begins with a pair that is missing; every other option then takes the value with most new pairs.
///   counts  of values, by option; at least two options.
inline std::vector<PairwiseRow> every_pair(const std::vector<int>& counts) {
  PairsHeld held;
  std::vector<PairwiseRow> rows;
  for (PairwiseRow row = first_missing_pair(counts, held); !row.empty();
       row = first_missing_pair(counts, held)) {
    for (std::size_t option = 0; option < counts.size(); ++option) {
      if (row[option] >= 0) continue;
      int best = -1, most = -1;
      for (int i = 0; i < counts[option]; ++i) {  // of equally good ones another one in every row
        const int value = (i + static_cast<int>(rows.size())) % counts[option];
        const int pairs = new_pairs(row, option, value, held);
        if (pairs > most) best = value, most = pairs;
      }
      row[option] = best;
    }
    for (std::size_t a = 0; a < row.size(); ++a)
      for (std::size_t b = 0; b < row.size(); ++b) held.insert(pair_of(a, row[a], b, row[b]));
    rows.push_back(std::move(row));
  }
  return rows;
}

/// A setting's description asks this for its options, in the same order every time.
class Choose {
 public:
  /// One of `values`: the row's, or the first one while options are counted.
  template <class T>
  T operator()(const char* option, std::initializer_list<T> values) {
    const std::size_t at = counts_.size();
    counts_.push_back(static_cast<int>(values.size()));
    const T value = values.begin()[row_.empty() ? 0 : row_[at]];
    text_ << (at == 0 ? "" : ", ") << option << " ";
    if constexpr (std::is_enum_v<T>) {
      text_ << static_cast<int>(value);
    } else {
      text_ << value;
    }
    return value;
  }
  [[nodiscard]] std::string text() const { return text_.str(); }

  /// make(choose) of every row of the table of the options for which it asks.
  template <class Make>
  static auto every_pair_of(const Make& make) {
    Choose counting({});
    std::vector<decltype(make(counting))> all;
    (void)make(counting);
    for (const PairwiseRow& row : every_pair(counting.counts_)) {
      Choose choose(row);
      all.push_back(make(choose));
    }
    return all;
  }

 private:
  explicit Choose(PairwiseRow row) : row_(std::move(row)) {}
  PairwiseRow row_;
  std::vector<int> counts_;
  std::ostringstream text_;
};

/// Whether tests try all that they can, as tests/soak.sh asks them to by STAGECRAFT_SETTINGS=all.
inline bool all_settings() {
  const char* settings = std::getenv("STAGECRAFT_SETTINGS");
  return settings != nullptr && std::string_view(settings) == "all";
}

/// Chooses one of several worlds (or numbers of buffers) for each setting of a test, at random but the same
/// every time; with all_settings() each setting meets all of them.
class Lot {
 public:
  /// which  of `of`, from 0
  Lot(unsigned which, unsigned of) : which_(which), of_(of) {}
  /// Whether the next setting is tried here.
  [[nodiscard]] bool draws() {
    const bool here = random_() % of_ == which_;
    return here || all_settings();
  }

 private:
  unsigned which_, of_;
  std::mt19937 random_{1};
};

}  // namespace sc::test

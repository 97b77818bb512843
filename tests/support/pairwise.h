// Tables of settings in which every value of an option meets every value of every other option. They need
// about as many rows as the two longest options have pairs, instead of the product of all options.
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

/// One setting: for each option, the index of its value.
using PairwiseRow = std::vector<int>;

/// Pairs of values that some row has, each in both orders: (option, value, other option, other value).
using PairsHeld = std::set<std::array<std::size_t, 4>>;
inline std::array<std::size_t, 4> pair_of(std::size_t a, int value_a, std::size_t b, int value_b) {
  return {a, static_cast<std::size_t>(value_a), b, static_cast<std::size_t>(value_b)};
}

/// A row with the first pair that no row has yet, and -1 for all other options; empty if no pair is missing.
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

/// The number of new pairs that `value` of `option` would make with the options already chosen in `row`.
inline int new_pairs(const PairwiseRow& row, std::size_t option, int value, const PairsHeld& held) {
  int pairs = 0;
  for (std::size_t other = 0; other < row.size(); ++other)
    pairs += row[other] >= 0 && !held.contains(pair_of(option, value, other, row[other])) ? 1 : 0;
  return pairs;
}

/// Rows that together have every pair of values of every two options; equal counts give equal rows. Each row
/// begins with a missing pair; every other option then takes the value with most new pairs.
///   counts  number of values of each option; at least two options
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

/// A description of settings asks this object for the value of each option, always in the same order.
class Choose {
 public:
  /// One of `values`: the current row's, or the first value while options are still being counted.
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

  /// make(choose) for every row of a table of the options that make() asks for.
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

/// Whether tests try every setting: tests/soak.sh requests it with STAGECRAFT_SETTINGS=all.
inline bool all_settings() {
  const char* settings = std::getenv("STAGECRAFT_SETTINGS");
  return settings != nullptr && std::string_view(settings) == "all";
}

/// Draws one of several worlds (or numbers of buffers) for each setting of a test, by a fixed seed; with
/// all_settings() each setting is tried in every world.
class Lot {
 public:
  ///   which  the number, from 0, of this world among `of`
  Lot(unsigned which, unsigned of) : which_(which), of_(of) {}
  /// Whether the next setting is tried in this world.
  [[nodiscard]] bool draws() {
    const bool here = random_() % of_ == which_;
    return here || all_settings();
  }

 private:
  unsigned which_, of_;
  std::mt19937 random_{1};
};

}  // namespace sc::test

// Tables of texts: what a test asks, and what must come back. The standard library and GoogleTest alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sc::test {

/// A question, or a text that was found, and what is expected of it.
using Answers = std::vector<std::pair<std::string, std::string>>;

/// `text` as `expected` says it: an expectation that ends in "..." is of the beginning alone.
inline std::string as_far_as(const std::string& text, const std::string& expected) {
  return expected.ends_with("...") ? text.substr(0, expected.size() - 3) + "..." : text;
}

/// ask(question) is the answer, as far as that goes, of each.
template <class Ask>
void expect_answers(const Ask& ask, const Answers& rows) {
  for (const auto& [question, answer] : rows) EXPECT_EQ(as_far_as(ask(question), answer), answer) << question;
}

/// ask(question) has the answer in it, of each.
template <class Ask>
void expect_in_answers(const Ask& ask, const Answers& rows) {
  for (const auto& [question, part] : rows)
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, ask(question)) << question;
}

/// Each text that was found is the one expected.
inline void expect_texts(const Answers& rows) {
  expect_answers([](const std::string& found) { return found; }, rows);
}

/// Each value that was found is the one expected.
template <class T>
void expect_each(const std::vector<std::pair<T, T>>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].first, rows[i].second) << "row " << i;
}
inline void expect_counts(const std::vector<std::pair<std::int64_t, std::int64_t>>& rows) {
  expect_each(rows);
}

/// Each number that was found is the one expected, but for a few roundings.
inline void expect_numbers(const std::vector<std::pair<double, double>>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_DOUBLE_EQ(rows[i].first, rows[i].second) << "row " << i;
}

/// All of `parts` are in `text`.
inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, text);
}

}  // namespace sc::test

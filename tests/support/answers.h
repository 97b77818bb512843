// Tables of texts for tests: questions and expected answers. Standard library and GoogleTest only.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sc::test {

/// Rows of a table: a question, or a text that was found, and the answer or text expected.
using Answers = std::vector<std::pair<std::string, std::string>>;

/// `text` as far as `expected` goes: if `expected` ends in "...", only the beginning is compared.
inline std::string as_far_as(const std::string& text, const std::string& expected) {
  return expected.ends_with("...") ? text.substr(0, expected.size() - 3) + "..." : text;
}

/// Expects that ask(question) is the answer of each row, as far as the answer goes.
template <class Ask>
void expect_answers(const Ask& ask, const Answers& rows) {
  for (const auto& [question, answer] : rows) EXPECT_EQ(as_far_as(ask(question), answer), answer) << question;
}

/// Expects that ask(question) contains the answer of each row.
template <class Ask>
void expect_in_answers(const Ask& ask, const Answers& rows) {
  for (const auto& [question, part] : rows)
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, ask(question)) << question;
}

/// Expects that each found text is the expected one, as far as the latter goes.
inline void expect_texts(const Answers& rows) {
  expect_answers([](const std::string& found) { return found; }, rows);
}

/// Expects that each found value equals the expected one.
template <class T>
void expect_each(const std::vector<std::pair<T, T>>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].first, rows[i].second) << "row " << i;
}
inline void expect_counts(const std::vector<std::pair<std::int64_t, std::int64_t>>& rows) {
  expect_each(rows);
}

/// Expects that each found number equals the expected one up to a few roundings.
inline void expect_numbers(const std::vector<std::pair<double, double>>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_DOUBLE_EQ(rows[i].first, rows[i].second) << "row " << i;
}

/// Expects that `text` contains all of `parts`.
inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, text);
}

}  // namespace sc::test

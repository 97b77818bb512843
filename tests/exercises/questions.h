// Checks exercises whose file holds questions with blank answers.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "pipedream/json_input.h"
#include "pipedream/schedule_file.h"
#include "tests/exercises/check.h"

namespace sc::exercise {

/// Throws NotReached with everything that judged(node, question) finds wrong in edited_file(), as lines;
/// judged returns "" for a right answer.
template <class Question, std::size_t N, class Judged>
void require_right_answers(const std::array<Question, N>& questions, const Judged& judged) {
  std::string wrong;
  try {
    const std::string path = edited_file();
    wrong = pipedream::of_text(pipedream::read_text(path), path, [&](const JsonNode& node) {
      const std::vector<JsonNode> given = node["questions"].elements();
      require(given.size() == N, "there are " + std::to_string(N) + " questions: restore them");
      std::string all;
      for (std::size_t i = 0; i < N; ++i) all += judged(given[i], questions[i]);
      return all;
    });
  } catch (const pipedream::InputError& error) {
    throw NotReached(error.what() + std::string("\n") + error.fix());
  }
  if (!wrong.empty()) wrong.pop_back();
  require(wrong.empty(), wrong);
}

}  // namespace sc::exercise

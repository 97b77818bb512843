#include <spdlog/fmt/fmt.h>

#include "tests/exercises/mesh.h"
#include "tests/exercises/questions.h"

namespace sc::exercise {
namespace {

std::string to_text(const MeshCase& q) {
  return fmt::format("{} layers of width {}, {} rows in micro-batches of {}", q.layers, q.width, q.rows,
                     q.micro);
}

std::string judged(const JsonNode& given, const MeshCase& q) {
  given.only({"layers", "heads", "width", "rows", "micro", "mesh"});
  const bool same = given["layers"].integer() == q.layers && given["heads"].integer() == q.heads &&
                    given["width"].integer() == q.width && given["rows"].integer() == q.rows &&
                    given["micro"].integer() == q.micro;
  require(same, "leave the questions as they were; here was " + to_text(q));
  const std::string wrong = missed(q, given["mesh"].text());
  return wrong.empty() ? "" : fmt::format("{}: {}\n", to_text(q), wrong);
}

// Judges by plans alone: nothing is allocated, and no rank is started.
std::string check() {
  require_right_answers(kMeshCases, judged);
  return fmt::format("all {} meshes fit, and none sends less between the nodes", kMeshCases.size());
}

}  // namespace

const Exercise kExercise{
    "mesh",
    "rank = (stage x data + replica) x tensor + tensor rank: write down who is in ranks 0 to 3. Between "
    "two stages go 4 bytes per token and channel of a step, between two data ranks twice 2 bytes per "
    "parameter of theirs: which is less? Then what they hold",
    check};

}  // namespace sc::exercise

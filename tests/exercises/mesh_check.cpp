#include <spdlog/fmt/fmt.h>

#include "tests/exercises/mesh.h"
#include "tests/exercises/questions.h"

namespace sc::exercise {
namespace {

using pipedream::JsonObject;

std::string to_text(const MeshCase& q) {
  return fmt::format("{} layers of width {}, {} rows in micro-batches of {}", q.layers, q.width, q.rows,
                     q.micro);
}

std::string judged(const nlohmann::json& json, const MeshCase& q) {
  JsonObject given(json, to_text(q));
  const bool same = given.integer("layers") == q.layers && given.integer("heads") == q.heads &&
                    given.integer("width") == q.width && given.integer("rows") == q.rows &&
                    given.integer("micro") == q.micro;
  require(same, "leave the questions as they were; here was " + to_text(q));
  const std::string wrong = missed(q, given.text("mesh"));
  given.finish();
  return wrong.empty() ? "" : fmt::format("{}: {}\n", to_text(q), wrong);
}

// Plans alone: nothing is allocated, and no rank is started.
std::string check() {
  require_right_answers(kMeshCases,
                        [](const nlohmann::json& json, const MeshCase& q) { return judged(json, q); });
  return fmt::format("all {} meshes fit, and none sends less between the nodes", kMeshCases.size());
}

}  // namespace
}  // namespace sc::exercise

int main() {
  return sc::exercise::judge(
      {"mesh",
       "rank = (stage x data + replica) x tensor + tensor rank: write down who is in ranks 0 to 3. Between "
       "two stages go 4 bytes per token and channel of a step, between two data ranks twice 2 bytes per "
       "parameter of theirs: which is less? Then what they hold",
       sc::exercise::check});
}

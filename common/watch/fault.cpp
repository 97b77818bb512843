#include "common/watch/fault.h"

#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/parse_number.h"
#include "common/base/text.h"

namespace sc {
namespace {

constexpr std::array<std::pair<std::string_view, Fault::Kind>, 4> kKinds = {
    {{"hang", Fault::Kind::hang},
     {"kill", Fault::Kind::kill},
     {"throw", Fault::Kind::throw_error},
     {"nan", Fault::Kind::nan}}};

[[noreturn]] void refuse(const std::string& text, const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::usage, "--inject " + text, what, fix);
}

Fault::Kind kind_from(const std::string& text, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, kind] : kKinds) {
    if (known == name) return kind;
    names.emplace_back(known);
  }
  const std::string near = nearest(name, names);
  refuse(text, "there is no fault \"" + name + "\"",
         near.empty() ? "one of hang, kill, throw, nan" : "did you mean " + near + "?");
}

}  // namespace

Fault Fault::parse(const std::string& text, WorldSize world) {
  const std::string form = "write kind@rank,step, for example hang@1,7";
  const std::size_t at = text.find('@'), comma = text.find(',', at == std::string::npos ? 0 : at);
  if (at == std::string::npos) refuse(text, "there is no @", form);
  if (comma == std::string::npos) refuse(text, "there is no comma between rank and step", form);
  Fault fault;
  fault.kind_ = kind_from(text, text.substr(0, at));
  const std::string rank_text = text.substr(at + 1, comma - at - 1), step_text = text.substr(comma + 1);
  const auto rank = parse_number<std::int64_t>(rank_text), step = parse_number<std::int64_t>(step_text);
  if (!rank) refuse(text, "the rank \"" + rank_text + "\" is not a whole number", form);
  if (!step) refuse(text, "the step \"" + step_text + "\" is not a whole number", form);
  if (*rank < 0 || *rank >= to_int(world)) {
    const std::string last = std::to_string(to_int(world) - 1);
    refuse(text, "rank " + std::to_string(*rank) + " is not in a world of " + std::to_string(to_int(world)),
           to_int(world) == 1 ? "the only rank is 0" : "ranks are 0 to " + last);
  }
  if (*step < 0) refuse(text, "step " + std::to_string(*step) + " never comes", "steps count from 0");
  fault.rank_ = Rank{static_cast<int>(*rank)};
  fault.step_ = *step;
  return fault;
}

void Fault::at_step(Rank rank, std::int64_t step) const {
  if (!due(rank, step)) return;
  if (kind_ == Kind::kill) std::raise(SIGKILL);
  if (kind_ == Kind::throw_error) {
    throw std::runtime_error("injected error: rank " + std::to_string(to_int(rank)) + ", step " +
                             std::to_string(step));
  }
  while (kind_ == Kind::hang) std::this_thread::sleep_for(std::chrono::seconds(1));
}

bool Fault::nan_at(Rank rank, std::int64_t step) const { return kind_ == Kind::nan && due(rank, step); }

}  // namespace sc

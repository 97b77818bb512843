#include "common/watch/pass.h"

namespace sc {

std::string_view name_of(Pass pass) {
  constexpr std::string_view kNames[] = {"none",           "forward",        "head",
                                         "backward",       "backward_input", "backward_weights",
                                         "embed_backward", "norm",           "update"};
  return kNames[static_cast<int>(pass)];
}

std::string describe(const Computed& computed, int last_unit, bool several) {
  std::string text(name_of(computed.pass));
  if (computed.unit != kNoUnit) text += " of " + unit_in_words(computed.unit, last_unit);
  if (several && computed.micro_batch >= 0) text += ", micro-batch " + std::to_string(computed.micro_batch);
  return text;
}

}  // namespace sc

#include "param_home.h"

namespace sc {

at::Tensor ParamsInWindow::destination(std::size_t piece, std::int64_t version) {
  if (rounded_.empty()) return {};
  return rounded_[window_.buffer_of(piece, version)].narrow(0, 0, window_.sizes[piece]);
}

at::Tensor ParamsInWindow::bring(std::size_t piece, std::int64_t version) {
  if (!rounded_.empty()) return destination(piece, version);
  return window_.states[window_.buffer_of(piece, version)].narrow(0, 0, window_.sizes[piece]);
}

at::Tensor ParamsOnHost::destination(std::size_t piece, std::int64_t version) {
  return arenas_[static_cast<std::size_t>(version) % arenas_.size()].narrow(0, window_.begins[piece],
                                                                            window_.sizes[piece]);
}

}  // namespace sc

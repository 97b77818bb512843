// One operation of a rank, as a trace draws it. No torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "common/watch/comm_op.h"

namespace sc {

struct OpSpan {
  using Clock = std::chrono::steady_clock;
  std::int64_t number = 0;  // 1, 2, ... on this rank
  Phase phase{};
  std::int64_t step = 0;
  Operation op;
  Bytes sent;                // by formula (wire_bytes)
  std::optional<Rank> peer;  // of a send or receive, in the world
  Clock::time_point issued;
  std::optional<Clock::time_point> began, ended;  // where the transport knows them
  std::optional<Clock::time_point> wait_began, wait_ended;
};

}  // namespace sc

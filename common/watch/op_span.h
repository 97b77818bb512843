// One operation of a rank, as a trace draws it. No torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "common/watch/comm_op.h"

namespace sc {

struct OpSpan {
  using Clock = std::chrono::steady_clock;
  std::int64_t number = 0;  // sequence number on this rank: 1, 2, ...
  Phase phase{};
  std::int64_t step = 0;
  Operation op;
  Bytes sent;                // by formula (wire_bytes)
  std::optional<Rank> peer;  // of a send or receive, as a rank of the world
  Clock::time_point issued;
  std::optional<Clock::time_point> began, ended;  // if the transport knows them
  std::optional<Clock::time_point> wait_began, wait_ended;
};

}  // namespace sc

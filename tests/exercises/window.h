// Lesson 06's exercise: what a window of host memory holds, and how long an update through it takes.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/types.h"

namespace sc::exercise {

/// The model of the questions: one rank, bf16, exact updates, gradients on the device.
inline constexpr const char* kWindowWorkload = "configs/gpt2_355m.json";

/// A question: the size of a window, and how fast disk and host are.
struct WindowCase {
  std::int64_t buffers = 1, piece = 0;
  double disk_mbps = 0;                // MB (10^6 bytes) a second, reads and writes together
  double adam_mparams_per_second = 0;  // 10^6
};

/// The numbers of elements of all pieces, in order.
std::vector<std::int64_t> pieces_of(const WindowCase& window);

/// The host memory of states, gradients and parameters in flight, pinned or not, from the lesson's plan.
Bytes window_bytes(const WindowCase& window);

/// Seconds per update by the lesson's order (states_on_disk.h), if updates follow each other, nothing waits
/// for the device, and the disk carries out one transfer after another.
double seconds_per_update(const WindowCase& window);

/// The same seconds by formula for one buffer (the sum of both times), and for three or more (the longer of
/// the two).
double seconds_by_formula(const WindowCase& window);

}  // namespace sc::exercise

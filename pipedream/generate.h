// The schedules of the literature, for any number of stages and microbatches.
#pragma once

#include <array>
#include <string_view>

#include "pipedream/schedule.h"

namespace sc::pipedream {

enum class Family : std::uint8_t {
  naive,        // one microbatch in the pipeline at a time
  gpipe,        // all forwards, then all backwards (arXiv:1811.06965)
  one_f_one_b,  // 1F1B with flush: a backward as soon as one is possible (arXiv:2006.09503, 2104.04473)
  interleaved,  // 1F1B over `chunks` model chunks per stage (arXiv:2104.04473)
  zb_h1,        // backward split in two, weights' half fills the idle time (arXiv:2401.10241)
  pipedream,    // 1F1B without flush, a step after every backward (arXiv:1806.03377)
  two_bw,       // 1F1B without flush, two weight versions (arXiv:2006.09503)
};
constexpr std::array<Family, 7> kFamilies = {Family::naive,       Family::gpipe, Family::one_f_one_b,
                                             Family::interleaved, Family::zb_h1, Family::pipedream,
                                             Family::two_bw};

/// What a family is called: "naive", "gpipe", "1f1b", "interleaved", "zb_h1", "pipedream" or "2bw".
std::string_view name_of(Family family);
/// Finds the family that a name stands for; false if there is none.
bool family_from_name(std::string_view name, Family& family);
/// Whether a stage steps without waiting for the pipeline to drain.
constexpr bool is_asynchronous(Family family) {
  return family == Family::pipedream || family == Family::two_bw;
}

struct GenerateOptions {
  Family family = Family::one_f_one_b;
  int stages = 4;
  int microbatches = 4;  // of one batch; PipeDream steps after each of them, the others once per batch
  int batches = 1;       // one after another; the schedule has batches * microbatches microbatches
  int chunks = 1;        // more than 1: interleaved and zb_h1 only
  VersionRule versions = VersionRule::stash;  // pipedream only: none, stash or vertical_sync
  int update_every = 0;  // pipedream and 2bw: microbatches per step, a divisor of a batch's; 0: the default
  int warmup = 0;        // 1f1b only: more forwards before the first backward, on all stages except the last
};

/// The largest `warmup`: with it the stage before the last one does all forwards first.
int most_warmup(const GenerateOptions& options);

/// The schedule with its messages, steps and weight versions. The backwards of a chunk's microbatches always
/// ascend.
///   Naive, GPipe, 1F1B, interleaved, ZB-H1
///                forward and backward of batch b read version b; step@b+1 ends it.
///   1F1B         stage s of S begins with min(M, S - s + warmup) forwards, the last stage with one.
///   Interleaved  forwards in rounds of S microbatches, M / S rounds; if S does not divide M, in rounds of
///                ceil(M / max(1, M / S)), where the microbatches that the last round lacks are left out
///                (removing a microbatch everywhere breaks no order).
///   PipeDream    stage s keeps S - s microbatches in flight. none: forward and backward read the newest
///                weights; stash: the backward of a microbatch reads what its forward read; vertical_sync:
///                every stage reads version max(0, k - S + 1) / update_every for microbatch k.
///   2BW          with M microbatches per step: those of step t read version max(0, t - 1) everywhere; needs
///                M >= S.
///   Errors       InputError (usage) for numbers out of range and meaningless combinations.
Schedule generate(const GenerateOptions& options);

/// Two schedules that deadlock on purpose, for the checker to find. Their compute actions are in a correct
/// order, but both post a receive only when they need the value.
///   send_first  1F1B, 4 stages: a stage sends forward while the next one sends back.
///   ring        interleaved, 4 stages of 2 chunks: every stage sends to the next, the last to the first.
Schedule deadlock_send_first();
Schedule deadlock_ring();

}  // namespace sc::pipedream

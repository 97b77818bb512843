// One rank's share of a pipeline: its list of actions, its units, its buffers. It follows from the shape and
// the settings alone, so that plan and execution cannot differ. No torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/memory/plan.h"
#include "common/model/activation_plan.h"
#include "common/model/param_layout.h"
#include "common/pipeline/options.h"
#include "common/pipeline/slots.h"
#include "common/pipeline/split.h"
#include "common/watch/comm_op.h"
#include "common/watch/contents.h"
#include "pipedream/schedule.h"
#include "pipedream/simulate.h"

namespace sc {

struct Share {
  /// `proven` is a checked schedule, `sharded` says that replicas of a stage cut its states into slices.
  ///   Errors   InputError 64: settings that fit neither the model nor the ranks; 65: a file that is none.
  Share(const RunShape& shape, const StageOptions& options, pipedream::Schedule proven, bool sharded = false);

  [[nodiscard]] const std::vector<pipedream::Action>& actions() const {
    return schedule.actions[static_cast<std::size_t>(stage)];
  }
  /// Whether a position has the first or the last blocks of the model.
  [[nodiscard]] bool embeds(int position) const { return position == 0; }
  [[nodiscard]] bool has_head(int position) const { return position + 1 == schedule.positions(); }
  [[nodiscard]] const Part& part(int position) const { return parts[static_cast<std::size_t>(position)]; }
  /// The part of the model that a block belongs to.
  [[nodiscard]] const Part& part_of(int unit) const;
  /// Whether the stage is the first or last; whether these are two stages, both with the tied matrix.
  [[nodiscard]] bool is_an_end() const { return first || last; }
  [[nodiscard]] bool has_two_ends() const { return tied > 0 && !(first && last); }
  /// Where a unit's segment begins in this rank's arenas, which have all sharded segments first, then the
  /// whole ones in one piece; -1: the rank does not have it.
  [[nodiscard]] std::int64_t begin(int unit, Segment segment = Segment::sharded) const {
    return (segment == Segment::sharded ? begins : whole_begins)[static_cast<std::size_t>(unit)];
  }
  /// What the rank is doing, in pipedream's notation.
  [[nodiscard]] std::string in_words(std::size_t index, const pipedream::Action& action) const;
  /// What a message carries: the output of a position's last block, or its gradient.
  [[nodiscard]] What what(const pipedream::Action& message) const;

  pipedream::Schedule schedule;              // of one step
  int stage = 0, replica = 0, replicas = 1;  // replicas: ranks of the data and the context axis
  std::vector<Part> parts;                   // by position
  // The layout of the model, or of a tensor rank's part of it, padded for the replicas' slices.
  ParamLayout layout;
  bool first = false, last = false;  // among all stages
  std::int64_t message = 0;          // elements of an activation that is sent to the next stage
  std::int64_t tied = 0;             // elements of wte if it is the head's matrix too; otherwise 0
  std::int64_t tied_copy = 0;        // elements that the last stage holds of unit 0 for its head; 0: none
  std::vector<std::int64_t> begins, whole_begins;
  Range whole;        // the part of the arenas that every tensor rank has
  Elements elements;  // of all vectors: units in order, then the copy
  Slots slots;
  std::optional<pipedream::Costs> costs, pace;  // in seconds
  std::int64_t shards = 1;                      // the number of slices into which replicas cut the states
  int most_blocks = 0;                          // over this rank's positions
  BufferShape buffers;

  /// The number of a gradient of x: two in turn come first, then the pool's, then those that a pending
  /// backward_weights reads.
  [[nodiscard]] int grad_slab(int of_pool) const { return 2 + of_pool; }
  [[nodiscard]] int pending_slab(int pending, int block) const {
    return 2 + slots.pools.grads + pending * most_blocks + block;
  }
};

/// The pass that an action computes, with the first unit of its part; Pass::none if it computes nothing.
Computed computed_in(const Share& share, const pipedream::Action& action);
/// What a rank holds: the units of its parts, and as many sets of activations as its list needs at once.
Contents contents_of(const Share& share);
/// Adds the buffers of a Stage: its vectors and states; plan_stage also those of gpt_layers.
void plan_stage_states(const RunShape& shape, const Share& share, MemoryPlan& plan);
void plan_stage(const RunShape& shape, const Share& share, MemoryPlan& plan);
/// Adds the messages in a list of actions.
void plan_messages(const RunShape& shape, const Share& share, const std::vector<pipedream::Action>& actions,
                   CommPlan& plan);
/// Adds the sums of gradients over a stage's replicas, unit by unit, the slices that they publish, and the
/// exchange of the tied matrix between the ends.
void plan_sums(const RunShape& shape, const Share& share, CommPlan& plan);

}  // namespace sc

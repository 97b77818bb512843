// What lesson 07 holds and sends, known before a run; and its settings. No torch.
#pragma once

#include <cstdint>
#include <string>

#include "common/pipeline/share.h"
#include "common/strategy/plans.h"

namespace sc {

/// States of parameters that a stage's replicas share: all of them on each, or lesson 02's slices.
enum class ReplicaStates { whole, sharded };
/// A send returns at once, or when its receive has begun.
enum class Sends { posted, blocking };

struct PipelineOptions {
  std::string schedule = "1f1b";  // naive, gpipe, 1f1b, interleaved, zb_h1, or file:PATH
  std::int64_t chunks = 1;        // model chunks a stage; interleaved alone means 2
  std::int64_t warmup = 0;        // 1f1b: more forwards before the first backward, but for the last stage
  std::int64_t replicas = 1;      // ranks that share a stage's micro-batches
  ReplicaStates states = ReplicaStates::whole;
  std::string split = "balanced";   // balanced, uniform, or blocks of each position: 7,7,7,3
  std::string profile_in = "none";  // pipedream's profile of the layers, for a balanced split
  std::string costs = "none";       // pipedream's costs, from which a step's time is predicted
  std::string pace = "none";        // pipedream's costs, which every action takes
  double link_ms = 0;               // messages arrive so much later
  Sends sends = Sends::posted;
  bool unchecked = false;             // a list that deadlocks runs, to see it hang
  std::int64_t verify_replicas = 50;  // every k steps all copies of a stage are compared; 0 = never
};

/// Keys of what a generated list depends on beside its schedule: lesson 11 has them, too.
template <class Options>
void add_list_fields(FieldTable<Options>& table) {
  table.add({"chunks", "", "model chunks a stage, for interleaved and zb_h1; interleaved alone means 2"},
            integer(1, 64), &Options::chunks);
  table.add({"warmup", "micro-batches",
             "1f1b: so many more forwards before the first backward, on all stages but the last"},
            integer(0, pipedream::kMostMicrobatches), &Options::warmup);
}

/// This rank's share of a schedule that pipedream has proven (proven.cpp).
///   Errors  InputError 64: settings that do not fit each other, the model or the ranks; 65: a schedule that
///           breaks a rule of pipedream::check, or a file that is none.
Share share_of(const RunShape& shape, const PipelineOptions& options);

class PipelinePlans final : public PlansWith<PipelinePlans, PipelineOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Contents contents(const RunShape& shape) const override;
  [[nodiscard]] Mesh mesh(WorldSize world) const override;
  [[nodiscard]] Facts facts(const RunShape& shape) const override;
  [[nodiscard]] std::string predict(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc

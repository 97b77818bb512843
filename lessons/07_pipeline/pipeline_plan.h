// What lesson 07 holds and sends, known before a run, and its settings. No torch.
#pragma once

#include <cstdint>
#include <string>

#include "common/pipeline/share.h"
#include "common/strategy/plans.h"

namespace sc {

/// What each replica of a stage keeps of the optimizer's states: all of them, or lesson 02's slice.
enum class ReplicaStates { whole, sharded };
/// When a send returns: at once, or as soon as its receive has begun.
enum class Sends { posted, blocking };

struct PipelineOptions {
  std::string schedule = "1f1b";  // naive, gpipe, 1f1b, interleaved, zb_h1, or file:PATH
  std::int64_t chunks = 1;        // parts of the model on each stage; 1 means 2 where it is interleaved
  std::int64_t warmup = 0;        // 1f1b: extra forwards before the first backward, not on the last stage
  std::int64_t replicas = 1;      // ranks that share a stage's micro-batches
  ReplicaStates states = ReplicaStates::whole;
  std::string split = "balanced";   // balanced, uniform, or the blocks of each position, as 7,7,7,3
  std::string profile_in = "none";  // a file with pipedream's profile of the layers, for a balanced split
  std::string costs = "none";       // a file with pipedream's costs, which predict a step's time
  std::string pace = "none";        // a file with pipedream's costs, which every action then takes
  double link_ms = 0;               // what is added to the time of every message
  Sends sends = Sends::posted;
  bool unchecked = false;             // runs a list in which pipedream found a deadlock, to see it hang
  std::int64_t verify_replicas = 50;  // steps between comparisons of all copies of a stage; 0: never
};

/// The keys that a generated list depends on besides its schedule. Lesson 11 has them, too.
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

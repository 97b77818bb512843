// The models that the tests of lesson 08 train, and the expected results.
#pragma once

#include "common/pipeline/split.h"
#include "lessons/08_weight_versions/weight_versions.h"
#include "tests/support/harness.h"
#include "tests/support/stale_reference.h"

namespace sc::test {

inline constexpr pipedream::VersionRule kRules[] = {
    pipedream::VersionRule::none, pipedream::VersionRule::stash, pipedream::VersionRule::vertical_sync,
    pipedream::VersionRule::two_buffers};

inline VersionOptions rule(pipedream::VersionRule versions, std::int64_t update_every = 0) {
  return {.versions = versions, .update_every = update_every};
}

inline Workload workload_of(std::int64_t layers, std::int64_t micro_batches) {
  Workload w = odd_workload();
  w.model.layers = layers;
  w.model.tied = false;
  w.batch.global = micro_batches * w.batch.micro;
  w.optim.warmup_steps = 7;  // updates
  w.optim.clip = 0.5;        // acts on every one
  return w;
}

inline RankResult stale_reference(const Workload& w, int stages, const VersionOptions& options,
                                  std::int64_t steps) {
  StaleReference::Options o;
  o.rule =
      static_cast<Stale>(static_cast<int>(options.versions) - static_cast<int>(pipedream::VersionRule::none));
  for (const Part& part : cut_blocks(w, stages, options.split)) o.blocks.push_back(part.blocks);
  const std::int64_t M = w.batch.global / w.batch.micro;
  o.update_every = options.update_every > 0 ? options.update_every : o.rule == Stale::two_buffers ? M : 1;
  LocalWorld alone(1);
  Ledger ledger(at::kCPU);
  return run_rank<StaleReference>(*alone.communicator(Rank{0}), shape_for(w, 1, 0, CommBackend::local), o,
                                  steps, ledger);
}

}  // namespace sc::test

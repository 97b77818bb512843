// The settings of lesson 08.
#pragma once

#include "lessons/07_pipeline/options.h"
#include "pipedream/schedule.h"

namespace sc {

/// Of which update the norm is that clips one: of the newest that all stages have made when this one is made.
enum class ClipNorm { lagged };

/// What they share with lesson 07 means the same: split, profile_in, costs, pace, link_ms.
struct VersionOptions : PipelineOptions {
  pipedream::VersionRule versions = pipedream::VersionRule::stash;
  std::int64_t update_every = 0;  // micro-batches; 0: auto, 1 or with two_buffers M
  ClipNorm clip_norm = ClipNorm::lagged;
};

}  // namespace sc

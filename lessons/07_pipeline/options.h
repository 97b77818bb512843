// The settings of lesson 07.
#pragma once

#include <cstdint>
#include <string>

namespace sc {

struct PipelineOptions {
  std::string schedule = "1f1b";      // naive, gpipe, 1f1b, interleaved, zb_h1, or file:PATH
  std::int64_t chunks = 1;            // model chunks a stage; interleaved alone means 2
  std::int64_t replicas = 1;          // ranks that share a stage's micro-batches
  std::string split = "balanced";     // balanced, uniform, or blocks of each position: 7,7,7,3
  std::int64_t verify_replicas = 50;  // every k steps all copies of a stage are compared; 0 = never
};

}  // namespace sc

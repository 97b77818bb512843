// Cuts a model's layers into pipeline stages.
#pragma once

#include <string>
#include <vector>

#include "pipedream/simulate.h"

namespace sc::pipedream {

/// One layer for one microbatch; times in seconds, sizes in bytes.
struct Layer {
  std::string name;
  double forward = 0, backward = 0;
  double output_bytes = 0;     // its output, which is sent on and comes back as a gradient
  double saved_bytes = 0;      // kept from forward to backward
  double parameter_bytes = 0;  // one version of its weights
  bool block = true;           // false: embedding or head, not counted by a uniform split
  [[nodiscard]] double time() const { return forward + backward; }
  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Profile {
  std::string name;
  std::vector<Layer> layers;
  double bandwidth = 0;  // between ranks, bytes per second; 0: messages cost nothing
  double memory = 0;     // of a rank, for weights and activations; 0: no limit
  friend bool operator==(const Profile&, const Profile&) = default;
};
constexpr int kMostLayers = 256;
constexpr int kMostRanks = 64;  // with replicas

struct Stage {
  int first = 0, last = 0;  // layers, both included
  int replicas = 1;         // ranks that share its microbatches
  friend bool operator==(const Stage&, const Stage&) = default;
};

/// How the m replicas of a stage sum their gradients: through a parameter server as in the PipeDream paper, 4
/// (m - 1) / m bytes per byte of weights, or around a ring as in NCCL, 2 (m - 1) / m.
enum class Reduction { parameter_server, ring };

struct Partition {
  std::vector<Stage> stages;
  double bottleneck = 0;  // seconds between two microbatches: the slowest stage or message
  double efficiency = 0;  // the layers' whole time over ranks * bottleneck
  [[nodiscard]] int ranks() const;
  /// The number of microbatches that the first stage admits before its first backward: ranks over its
  /// replicas, rounded up (NOAM).
  [[nodiscard]] int in_flight() const;
};

/// The seconds of a stage per microbatch, (1/m) (sum of its layers' times + all-reduce of their weights over
/// m replicas).
double stage_time(const Profile& profile, const Stage& stage, Reduction reduction);
/// The bytes on a rank of a stage: ceil(R / m) versions of weights and microbatches of activations, where R
/// ranks work on this stage and the following ones.
double stage_memory(const Profile& profile, const Stage& stage, int ranks_from_here);
/// The bottleneck of a partition: stage times, and twice the bytes of each cut over the bandwidth.
double bottleneck_of(const Profile& profile, const std::vector<Stage>& stages, Reduction reduction);

/// The partition with the least bottleneck on at most `ranks` ranks; among equals the one with fewer ranks,
/// then fewer stages.
///   Method  dynamic programme over (first layer i, ranks left R): B(i, R) = min over the stage's last layer
///           k and its replicas m of max(T(i..k, m), 2 a_k / bandwidth, B(k + 1, R - m)), as in PipeDream
///           (arXiv:1806.03377, section 3.1), built from the model's end because a stage's memory depends on
///           the ranks after it.
///   Errors  InputError (data): no layers or too many, numbers negative or not finite, or nothing fits into
///           the memory; (usage): ranks out of range.
Partition optimal_partition(const Profile& profile, int ranks, Reduction reduction);

/// A partition into `stages` stages without replicas and with equal numbers of blocks (the first stages get
/// the remainder). What precedes the first block or follows the last one belongs to that block's stage.
Partition uniform_partition(const Profile& profile, int stages);
/// A partition into `stages` stages without replicas that minimises the slowest one's time; messages do not
/// count.
Partition balanced_partition(const Profile& profile, int stages);

/// The partition's costs for simulate(): one entry per stage (m replicas count as one stage that is m times
/// as fast, without the exchange of gradients), messages of the largest cut. Backward is divided evenly
/// between its halves.
Costs costs_of(const Profile& profile, const Partition& partition);

/// The shape of a GPT-2: blocks of width d, sequence T, vocabulary padded.
struct Gpt2Shape {
  std::string name;
  int blocks = 0, width = 0;
};
/// Finds the shape of gpt2_124m, gpt2_355m, gpt2_774m or gpt2_1558m; false for another name.
bool gpt2_from_name(const std::string& name, Gpt2Shape& shape);
/// The profile of a GPT-2: embedding (no time), blocks, head. Floating point operations of forward per token:
/// block 24 d^2 + 2 T d (causal attention counted once), head 2 V d with V = 50304; backward twice that; at
/// `flops` per second. Sizes for 2 bytes per element: output 2 b T d, saved 34 b T d per block
/// (arXiv:2205.05198 without attention scores), weights 2 bytes per parameter, the tied matrix on both ends.
Profile gpt2_profile(const Gpt2Shape& shape, int micro_batch, int sequence, double flops);

}  // namespace sc::pipedream

// Lesson 11's exercise: what the ranks of a mesh hold, and what they send from one node to the other.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/memory/plan.h"

namespace sc::exercise {

/// Two nodes of four GPUs: ranks 0 to 3 and 4 to 7.
inline constexpr int kMeshRanks = 8, kMeshNode = 4;
/// The limit for the plan on each GPU of 24 GB; 2 GB are for CUDA, NCCL and libraries' scratch, which no plan
/// contains.
inline constexpr Bytes kMeshDevice{22'000'000'000};

/// A GPT and a step's rows of 1024 tokens, to be laid out on the eight ranks with the lesson's defaults.
struct MeshCase {
  std::int64_t layers = 0, heads = 0, width = 0, rows = 0, micro = 0;
};
/// The three questions: few tokens; many; many, and a model for which one node's memory is short.
inline constexpr std::array<MeshCase, 3> kMeshCases = {
    {{48, 25, 1600, 96, 24}, {48, 25, 1600, 1920, 24}, {42, 32, 4096, 4096, 2}}};

/// The properties of a mesh, from the plans of its ranks.
struct Laid {
  std::string mesh;
  int fullest = 0;                      // the rank that holds most
  MemoryPlan holds;                     // and what
  std::map<std::string, Bytes> across;  // what all ranks send to the other node in a step, by axis
  [[nodiscard]] Bytes sent() const;
  [[nodiscard]] bool fits() const { return holds.total() <= kMeshDevice; }
};

/// Lays a model out on a mesh.
///   Errors  NotReached for what is no mesh of eight ranks, or one that does not take the model or its rows.
Laid lay(const MeshCase& question, const std::string& mesh);
/// All meshes of eight ranks that fit, least bytes between the nodes first.
std::vector<Laid> all_that_fit(const MeshCase& question);

/// What is wrong with a mesh as an answer; empty if no mesh that fits sends less between the nodes.
std::string missed(const MeshCase& question, const std::string& mesh);

}  // namespace sc::exercise

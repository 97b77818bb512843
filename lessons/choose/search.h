// Finds for each candidate the batch.micro and activations that fit and take the least time, and which
// candidate to take.
#pragma once

#include "candidates.h"
#include "measured.h"

namespace sc::choose {

/// The bytes that driver and libraries take on a GPU besides the plan: context, cuBLAS, cuDNN, NCCL.
inline constexpr Bytes kBesideThePlan{1'000'000'000};

struct Needs {
  Bytes device;      // of the GPU that holds the most, with kBesideThePlan
  Bytes host, disk;  // of all ranks
};

struct Row {
  Candidate candidate;
  bool fits = false;
  std::string reason = {};  // what is missing, if it does not fit
  RunShape shape = {};      // the shape that fits, or the one that needs the least
  Needs needs = {};         // the needs of that shape
  // The most bytes that a rank moves in a step: to other ranks, to other nodes, to its host, to its disk.
  Bytes sent = {}, to_nodes = {}, copied = {}, on_disk = {};
  double seconds = 0;
  [[nodiscard]] double tokens_per_second() const;
  // The candidate's settings, and activations if they are computed again.
  [[nodiscard]] std::vector<std::string> settings() const;
};

std::string activations_setting(Workload workload);  // "activations=recompute"

/// A row for each candidate, grouping and resident, in order. batch.micro goes through the divisors of
/// batch.global / ranks; the row has the one that fits with the most tokens per second, the largest among
/// equals, and keeps activations rather than recompute them.
std::vector<Row> search(const Machine& machine, const Measured& measured, const Workload& workload);

/// The row to advise: among those that train as one device does (not late) and are within kAsGood of the most
/// tokens per second, one that leaves states on the GPUs, if any; of those the one that sends least to other
/// nodes, and the first of equals; null: none fits.
inline constexpr double kAsGood = 0.02;
const Row* best(const std::vector<Row>& rows);

/// The best row of each kind: the fastest that fits, or the one that misses least; in order.
std::vector<Row> best_of_kinds(const std::vector<Row>& rows);
/// The rows that fit, quickest first: at most `count`, with one of each kind that goes by degrees.
std::vector<Row> nearest(const std::vector<Row>& rows, std::size_t count);
/// What a step waits for most besides its products, in words: which link and bytes, the pipeline's ends, or
/// nothing.
std::string waits_for(const Row& row, const Rates& rates);

/// Changes of a machine on which nothing fits with which something does, nearest first.
std::vector<std::string> nearest_that_works(const Machine& machine, const Measured& measured,
                                            const Workload& workload);

}  // namespace sc::choose

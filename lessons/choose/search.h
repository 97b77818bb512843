// For each candidate the batch.micro and activations that fit and take the least time, and which of them all
// to take.
#pragma once

#include "candidates.h"
#include "measured.h"

namespace sc::choose {

/// What the driver and the libraries take of a GPU beside the plan: context, cuBLAS, cuDNN, NCCL.
inline constexpr Bytes kBesideThePlan{1'000'000'000};

struct Needs {
  Bytes device;      // of the GPU that holds the most, with kBesideThePlan
  Bytes host, disk;  // of all ranks
};

struct Row {
  Candidate candidate;
  bool fits = false;
  std::string reason = {};  // where it does not fit: what is missing
  RunShape shape = {};      // the one that fits, or the one that needs the least
  Needs needs = {};         // of it
  Bytes sent = {}, to_nodes = {}, copied = {},
        on_disk =
            {};  // by a rank in a step: to others, of it to other nodes, over the host link, over the disk
  double seconds = 0;
  [[nodiscard]] double tokens_per_second() const;
  [[nodiscard]] std::vector<std::string> settings()
      const;  // the candidate's, and activations if computed again
};

std::string activations_setting(Workload workload);  // "activations=recompute"

/// All candidates, groupings and residents, in order. batch.micro goes through the divisors of batch.global /
/// ranks; of those that fit the one with the most tokens a second counts, of equals the largest, and of
/// activations keep before recompute.
std::vector<Row> search(const Machine& machine, const Measured& measured, const Workload& workload);

/// Of the rows within kAsGood of the most tokens a second, among those that train as one device does (not
/// late), the one that sends least to other nodes, and of equals the first; null: none fits.
inline constexpr double kAsGood = 0.02;
const Row* best(const std::vector<Row>& rows);

/// Of each kind the best one that fits, else the one that misses least; in order.
std::vector<Row> best_of_kinds(const std::vector<Row>& rows);
/// The rows that fit, quickest first: `count` of them at most, one of each kind that goes by degrees.
std::vector<Row> nearest(const std::vector<Row>& rows, std::size_t count);
/// In words what a step waits for most, beside its products: which link and bytes, the pipeline's ends, or
/// nothing.
std::string waits_for(const Row& row, const Rates& rates);

/// Where nothing fits: changes of the machine with which something does, nearest first.
std::vector<std::string> nearest_that_works(const Machine& machine, const Measured& measured,
                                            const Workload& workload);

}  // namespace sc::choose

// Steps that were timed on GPUs, and the shares of a GPU's peaks that follow from them. No torch.
#pragma once

#include <string>
#include <vector>

#include "common/config/workload.h"
#include "machine.h"

namespace sc::choose {

struct MeasuredStep {
  std::string record, run, lesson;    // docs/results/RECORD.json; its row; the lesson's folder
  std::vector<std::string> settings;  // of the lesson, as in candidates.h
  Workload workload;
  std::string gpu;  // a name in the table of GPUs
  std::int64_t gpus = 1;
  double disk = 0;  // bytes per second, measured between the runs; 0: no disk was used
  double seconds = 0;
};

/// The content of lessons/choose/measured.json, which tests/benchmarks/choosing.py makes from docs/results/.
struct Measured {
  std::string gpu;                             // a name in the table of GPUs
  double memory = 0, link = 0, host_link = 0;  // bytes per second that this GPU reached
  double call_seconds = 0;                     // of a collective without its bytes
  double taken = 0;                            // as in Rates
  CopyRates pair, group;                       // between two GPUs, and between four
  double adam = 0, adam_early = 0;             // parameters per second on its host, as in Rates
  double largest_error = 0;  // of a step's prediction from all others, or from those before it; a share
  std::vector<MeasuredStep> steps;
  std::vector<MeasuredStep> ahead;  // steps to be timed one day, without seconds
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20U;
  /// Reads the file `path`.
  ///   Errors  InputError 65 at `path`.
  static Measured read(const std::string& path);
  /// Parses the text of that file.
  static Measured parse(const std::string& text, const std::string& path);
};

/// A machine's rates: its peaks times the shares that `measured` found. What `machine` says of links and disk
/// is taken as it is, and a call takes as long as it took there.
///   Products  share s and start_tokens n0 by least squares over lesson 00's steps:
///             (seconds - update) peak / FLOPs of n tokens = 1/s + (n0/s) / n
///   fp32      a share of its own, the mean of one GPU's steps
///   Eager     the mean of how many times as long lesson 08's steps took as predicted without it
///   Parts     part_start_tokens by least squares of the relative errors of lesson 10's steps
Rates rates_of(const Machine& machine, const Measured& measured, DType dtype);

}  // namespace sc::choose

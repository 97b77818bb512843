// Closed formulas from the literature, to compare with the simulator.
#pragma once

#include <optional>

#include "pipedream/generate.h"
#include "pipedream/simulate.h"

namespace sc::pipedream {

/// The makespan of `options` with equal stages, no step time and messages that take no time, if a formula is
/// known; N = M * batches; f, b, i, w are the times of forward, backward and its halves (b = i + w):
///   naive                N S (f + b)
///   GPipe, 1F1B          batches (M + S - 1)(f + b)        for any warm-up
///   interleaved          batches (M + (S - 1) / v)(f + b)      if S divides M and v > 1
///   ZB-H1 (v = 1)        batches (M (f + b) + (S - 1)(f + i - w))  if M >= S and f = i = w
///   PipeDream, 2BW       (N + S - 1)(f + b)
/// Source: the papers named in generate.h.
std::optional<double> formula_makespan(const GenerateOptions& options, const StageTimes& times);

/// The activations in flight on stage s, in chunks of a microbatch:
///   naive                1
///   GPipe                M
///   1F1B                 min(M, S - s + warmup); on the last stage 1
///   interleaved          min(v M, (v - 1) S + 2 (S - s - 1) + 1)   if S divides M and v > 1
///   ZB-H1                min(M, S)
///   PipeDream, 2BW       min(N, S - s)
std::optional<int> formula_activations(const GenerateOptions& options, int stage);

/// The bytes that one interior stage of a pipeline sends in a step: an activation to the next stage and a
/// gradient to the previous one, for each of m microbatches, with 2 bytes per element: 4 m b s h.
double pipeline_bytes(double microbatches, double micro_batch, double sequence, double hidden);
/// The bytes that one rank of ZeRO-3 sends in a step with g accumulation steps and N ranks, with 2 bytes per
/// element.
///   most    6 g P (N - 1) / N: two all-gathers and a reduce-scatter of P parameters per accumulation step
///   least   (2 g + 2) P (N - 1) / N: a parameter that is still in a buffer is not gathered again, so each is
///           gathered once per step; its gradient is reduced in every accumulation step
double zero3_most_bytes(double accumulation, double parameters, double ranks);
double zero3_least_bytes(double accumulation, double parameters, double ranks);

}  // namespace sc::pipedream

// What a rank holds of the model at a moment, unit by unit: derived from what it computed, moved and gave up.
// Memory is allocated once and stays; this is about what is in it. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/watch/op_span.h"
#include "common/watch/timeline.h"

namespace sc {

/// What a rank can hold of a unit.
enum class Content : std::uint8_t { parameters, gradients, states, activations };

/// Of one unit: nothing; this rank's slice; all of it is on its way here; all of it; all of it, and it is
/// leaving.
enum class Extent : std::uint8_t { free, slice, arriving, whole, leaving };
std::string_view name_of(Extent extent);

struct UnitRange {
  int first = 0, last = 0;  // both are in it
  bool operator==(const UnitRange&) const = default;
};

/// What a rank holds between two steps, and how much of it may be there at once.
struct Contents {
  std::string unknown = {};  // why nobody can say what is there, as a clause; empty: one can
  std::vector<UnitRange> parts =
      {};  // of which it computes; a pipeline's stage has one for each chunk. Empty: all units
  Extent parameters = Extent::whole;  // slice: an update makes slices, which are gathered
  Extent states = Extent::whole;      // of the optimizer
  bool cut = false;                   // tensor ranks: of no unit there is ever more than this rank's slice
  // Whole (or on their way) at the same time; empty: not said.
  std::optional<int> most_gradients = {}, most_parameters = {};  // units
  std::optional<int> most_sets = {};                             // of one unit's activations
  std::optional<int> most_versions = {};                         // of one unit's parameters
};

/// From `at` on.
struct ContentChange {
  OpSpan::Clock::time_point at;
  Content what{};
  int unit = 0;
  Extent extent{};
  int copies = 1;  // sets of activations, versions of parameters
  bool operator==(const ContentChange&) const = default;
};

/// What is known of some steps, which follow each other, on one rank.
struct Happened {
  std::span<const Timeline::Span> spans;
  std::span<const Timeline::Change> changes;
  std::span<const OpSpan> operations;
  OpSpan::Clock::time_point begin;  // of the first step
};

struct ModelFacts {
  int last_unit = 0;
  bool tied = false;   // the head's matrix is unit 0's, so that the head writes unit 0's gradient
  bool alone = false;  // one rank: its slice is all there is
};

/// In the order of their times; the first ones, at `begin`, are what was there. Empty where nobody knows.
std::vector<ContentChange> content_changes_of(const Contents& contents, const ModelFacts& model,
                                              const Happened& happened);

}  // namespace sc

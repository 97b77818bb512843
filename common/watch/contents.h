// What a rank holds of the model over time, unit by unit, derived from what it computed, moved and released.
// Memory is allocated once and stays; this is about its contents. No torch.
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

/// The parts of a unit that a rank can hold.
enum class Content : std::uint8_t { parameters, gradients, states, activations };

/// How much of a unit's part is held: nothing; this rank's slice; all of it, still arriving; all of it; all
/// of it, already leaving.
enum class Extent : std::uint8_t { free, slice, arriving, whole, leaving };
std::string_view name_of(Extent extent);

struct UnitRange {
  int first = 0, last = 0;  // both are included
  bool operator==(const UnitRange&) const = default;
};

/// What a rank holds between two steps, and how much of it may exist at once.
struct Contents {
  std::string unknown = {};  // the reason if the contents cannot be known, as a clause; otherwise empty
  // The units that the rank computes with: one range per chunk of a pipeline stage. Empty: all units.
  std::vector<UnitRange> parts = {};
  Extent parameters = Extent::whole;  // slice: an update makes slices, which are gathered
  Extent states = Extent::whole;      // of the optimizer
  bool cut = false;                   // tensor ranks never have more than their slice of a unit
  // The most that is whole (or on its way) at the same time; empty: not stated. Gradients and parameters in
  // units, sets of one unit's activations, versions of one unit's parameters.
  std::optional<int> most_gradients = {}, most_parameters = {};
  std::optional<int> most_sets = {};
  std::optional<int> most_versions = {};
};

/// How much a rank holds of one part of a unit from time `at` on.
struct ContentChange {
  OpSpan::Clock::time_point at;
  Content what{};
  int unit = 0;
  Extent extent{};
  int copies = 1;  // number of sets of activations or versions of parameters
  bool operator==(const ContentChange&) const = default;
};

/// The known events of some consecutive steps on one rank.
struct Happened {
  std::span<const Timeline::Span> spans;
  std::span<const Timeline::Change> changes;
  std::span<const OpSpan> operations;
  OpSpan::Clock::time_point begin;  // of the first step
};

/// Facts of the model and the world that events do not show.
struct ModelFacts {
  int last_unit = 0;
  bool tied = false;   // the head uses unit 0's matrix, so it writes unit 0's gradient
  bool alone = false;  // a world of one, in which the rank's slice is everything
};

/// The changes in the order of their times; the first ones, at `begin`, are the initial contents. Empty if
/// contents.unknown.
std::vector<ContentChange> content_changes_of(const Contents& contents, const ModelFacts& model,
                                              const Happened& happened);

}  // namespace sc

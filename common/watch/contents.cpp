#include "common/watch/contents.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace sc {
namespace {

using At = OpSpan::Clock::time_point;

struct Effect {
  At at;
  Content what{};
  int unit = 0;
  std::optional<Extent> extent = {};
  int more = 0;  // change of the number of copies
  std::optional<int> copies = {};
};

class Effects {
 public:
  Effects(const Contents& contents, const ModelFacts& model, const Happened& happened)
      : contents_(contents), last_unit_(model.last_unit), model_(model), happened_(happened) {
    for (const OpSpan& op : happened.operations)
      gathers_ |= op.op.purpose == OpPurpose::parameters && op.op.kind == CommKind::all_gather;
    for (const Timeline::Span& span : happened.spans) compute(span);
    for (const Timeline::Change& change : happened.changes) change_to(change);
    operations();
    std::stable_sort(all_.begin(), all_.end(), [](const Effect& a, const Effect& b) { return a.at < b.at; });
  }
  [[nodiscard]] const std::vector<Effect>& all() const { return all_; }

  // The micro-batches whose activations a unit holds when the first recorded step begins. The first forward
  // and the first backward in the record tell: what lies between them was forwarded in an earlier step.
  [[nodiscard]] int sets_before(int unit) const {
    std::optional<int> forward, backward;
    for (const Timeline::Span& span : happened_.spans) {
      if (!span.computed || span.on_host || span.computed->micro_batch < 0) continue;
      const std::vector<int> units = units_of(span.computed->unit, !span.name.empty());
      if (std::ranges::find(units, unit) == units.end()) continue;
      if (span.computed->pass == Pass::forward) forward = forward.value_or(span.computed->micro_batch);
      if (ends_backward(span.computed->pass)) backward = backward.value_or(span.computed->micro_batch);
    }
    return forward && backward ? std::max(0, *forward - *backward) : 0;
  }
  // The units that a span or a change concerns: its own unit, its whole part, or all parts.
  [[nodiscard]] std::vector<int> units_of(int unit, bool whole_part) const {
    std::vector<int> units;
    for (const UnitRange& part : parts())
      for (int u = part.first; u <= part.last; ++u)
        if (unit == kNoUnit || (whole_part ? part.first <= unit && unit <= part.last : u == unit))
          units.push_back(u);
    return units;
  }
  [[nodiscard]] std::vector<UnitRange> parts() const {
    return contents_.parts.empty() ? std::vector<UnitRange>{{0, last_unit_}} : contents_.parts;
  }

 private:
  void put(At at, Content what, int unit, Extent extent) {
    if (contents_.cut && extent != Extent::free) extent = Extent::slice;
    const bool all = model_.alone && extent == Extent::slice;
    all_.push_back({at, what, unit, all ? Extent::whole : extent});
  }
  void count(At at, int unit, int more) { all_.push_back({at, Content::activations, unit, {}, more}); }

  void compute(const Timeline::Span& span) {
    if (!span.computed || span.on_host) return;
    const Computed& c = *span.computed;
    for (const int unit : units_of(c.unit, !span.name.empty())) {
      // The head's activations are used up at once, so it keeps none.
      const bool keeps = unit != last_unit_ || !contents_.parts.empty();
      if (c.pass == Pass::forward && keeps) count(span.begin, unit, 1);
      if (writes_gradient(c.pass)) put(span.begin, Content::gradients, unit, Extent::whole);
      if (ends_backward(c.pass) && keeps) count(span.end, unit, -1);
      if (c.pass != Pass::update) continue;
      if (gathers_) put(span.begin, Content::parameters, unit, Extent::slice);
      put(span.end, Content::gradients, unit, Extent::free);
    }
    if (c.pass == Pass::head && model_.tied) put(span.begin, Content::gradients, 0, Extent::whole);
  }
  static bool writes_gradient(Pass pass) {
    return pass == Pass::head || pass == Pass::backward || pass == Pass::backward_weights ||
           pass == Pass::embed_backward;
  }
  static bool ends_backward(Pass pass) {
    return pass == Pass::backward || pass == Pass::backward_weights || pass == Pass::embed_backward;
  }

  void change_to(const Timeline::Change& change) {
    for (const int unit : units_of(change.unit, false)) {
      if (change.versions) {
        all_.push_back({change.at, Content::parameters, unit, {}, 0, change.versions});
      } else {
        put(change.at, Content::parameters, unit, contents_.parameters);
      }
    }
  }

  // Equal operations that were issued one after another move one unit's contents together.
  void operations() {
    const std::span<const OpSpan> ops = happened_.operations;
    for (std::size_t i = 0; i < ops.size();) {
      const auto kind_of = [&](std::size_t k) {
        return std::tuple(ops[k].op.kind, ops[k].op.purpose, ops[k].op.unit, ops[k].step);
      };
      const At begin = ops[i].began.value_or(ops[i].issued);
      std::optional<At> end;
      const std::size_t first = i;
      for (; i < ops.size() && kind_of(i) == kind_of(first); ++i) {
        const std::optional<At> its = ops[i].ended ? ops[i].ended : ops[i].wait_ended;
        if (its) end = std::max(end.value_or(*its), *its);
      }
      if (end) move(ops[first].op, begin, *end);
    }
  }

  void move(const Operation& op, At begin, At end) {
    if (op.unit == kNoUnit) return;
    const auto is = [&](CommKind kind, OpPurpose purpose) {
      return op.kind == kind && op.purpose == purpose;
    };
    const auto both = [&](Content what, Extent on_the_way, Extent then) {
      put(begin, what, op.unit, on_the_way), put(end, what, op.unit, then);
    };
    if (is(CommKind::all_gather, OpPurpose::parameters))
      both(Content::parameters, Extent::arriving, Extent::whole);
    if (is(CommKind::reduce_scatter, OpPurpose::gradients))
      both(Content::gradients, Extent::leaving, Extent::slice);
    if (is(CommKind::to_device, OpPurpose::parameters)) put(end, Content::parameters, op.unit, Extent::slice);
    if (is(CommKind::to_host, OpPurpose::gradients)) put(end, Content::gradients, op.unit, Extent::free);
    if (is(CommKind::disk_read, OpPurpose::states)) put(end, Content::states, op.unit, Extent::slice);
    if (is(CommKind::disk_write, OpPurpose::states)) put(end, Content::states, op.unit, Extent::free);
  }

  const Contents& contents_;
  const int last_unit_;
  const ModelFacts& model_;
  const Happened& happened_;
  bool gathers_ = false;
  std::vector<Effect> all_;
};

// Applies one event to a unit's contents; `whole` is the extent when all of it that the rank uses is there.
void apply(const Effect& effect, Extent whole, ContentChange& cell) {
  cell.at = effect.at;
  if (effect.extent) cell.extent = *effect.extent;
  if (effect.copies) cell.copies = *effect.copies;
  if (effect.what != Content::activations) return;
  cell.copies += effect.more;
  cell.extent = cell.copies > 0 ? whole : Extent::free;
}

}  // namespace

std::string_view name_of(Extent extent) {
  constexpr std::string_view kNames[] = {"free", "slice", "arriving", "whole", "leaving"};
  return kNames[static_cast<int>(extent)];
}

std::vector<ContentChange> content_changes_of(const Contents& contents, const ModelFacts& model,
                                              const Happened& happened) {
  if (!contents.unknown.empty()) return {};
  const Effects effects(contents, model, happened);
  const Extent slice = model.alone ? Extent::whole : Extent::slice,
               whole = contents.cut ? slice : Extent::whole;
  std::map<std::pair<Content, int>, ContentChange> cells;
  const auto rest = [&](Content what, int unit, Extent extent, int copies = 1) {
    const Extent there = extent == Extent::slice ? slice : extent;
    cells[{what, unit}] = {happened.begin, what, unit, there, copies};
  };
  for (const int unit : effects.units_of(kNoUnit, true)) {
    rest(Content::parameters, unit, contents.parameters);
    rest(Content::states, unit, contents.states);
    rest(Content::gradients, unit, Extent::free);
    const int sets = effects.sets_before(unit);
    rest(Content::activations, unit, sets > 0 ? whole : Extent::free, sets);
  }
  std::vector<ContentChange> rows;
  const auto add = [&rows](const ContentChange& cell) {
    rows.push_back(cell);
    rows.back().copies = std::max(1, cell.copies);
  };
  auto effect = effects.all().begin();
  // Effects before `begin` belong to the initial contents: another thread may begin a step's work early.
  for (; effect != effects.all().end() && effect->at <= happened.begin; ++effect)
    if (const auto found = cells.find({effect->what, effect->unit}); found != cells.end())
      apply(*effect, whole, found->second);
  for (auto& [key, cell] : cells) {
    cell.at = happened.begin;
    add(cell);
  }
  for (; effect != effects.all().end(); ++effect) {
    const auto found = cells.find({effect->what, effect->unit});
    if (found == cells.end()) continue;  // a unit of another rank: the copy of a tied matrix
    const ContentChange before = found->second;
    apply(*effect, whole, found->second);
    if (found->second.extent != before.extent || found->second.copies != before.copies) add(found->second);
  }
  return rows;
}

}  // namespace sc

// What is known of a strategy with its settings before a run: keys, bytes, operations, facts. No torch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/config/field_table.h"
#include "common/memory/plan.h"
#include "common/model/context_cut.h"
#include "common/watch/comm_op.h"
#include "common/watch/contents.h"

namespace sc {

/// What a rank on the CPU may have that is slower than it is.
struct SlowLinks {
  double message_ms = 0;  // messages between ranks arrive so much later
  double copy_mbps =
      0;  // copies between device and host: at most so many 10^6 bytes a second each way; 0: no limit
};

/// Throws InputError (exit 64): with this value of the key there is no run of that shape, and why.
[[noreturn]] void refuse_setting(const std::string& key, const std::string& why, const std::string& fix);

/// Sets "key=value" each.
///   Errors  InputError (exit 64) for a value that a key does not take; the keys exist.
void set_all(const FieldSet& fields, const std::vector<std::string>& settings);

struct Facts {
  SlowLinks links;
  std::int64_t updates_a_step = 1;  // what warm-up and decay count
  std::int64_t planned_from = 0;    // the first step whose operations comm_plan says; the second one at most
  Bytes pending = {};  // a checkpoint's besides states: in_flight(), and what state() marks as pending
  /// Settings with which a rank's device holds less ("params_at=disk parameters=sharded" belong together),
  /// what costs least first.
  std::vector<std::string> smaller = {};
  std::string no_graph = {};  // why no CUDA graph can hold a step; empty: one can
  std::string no_evaluation =
      {};  // why it evaluates at a run's end alone; empty: --eval-every does in between
  std::vector<std::string> notes = {};  // what of its settings this run never gets to
  std::string no_checkpoint = {};       // why its state between steps cannot be saved; empty: it can
  ContextCut cut = {};                  // which tokens of a row the rank has
};

/// Needs no device and no ranks. Plans and facts are of the rank in `shape`.
///   Errors  InputError (exit 64) for settings that contradict each other or the shape.
class Plans {
 public:
  Plans() = default;
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;
  virtual ~Plans() = default;
  /// The settings by key. They are this object's, and it outlives them.
  [[nodiscard]] virtual FieldSet fields() = 0;
  /// What the ranks of a world of this size are to each other.
  [[nodiscard]] virtual Mesh mesh(WorldSize world) const { return Mesh(world); }
  /// For how many ranks each one stands where micro-batches are dealt.
  [[nodiscard]] virtual std::int64_t virtual_ranks() const { return 1; }
  [[nodiscard]] virtual MemoryPlan memory_plan(const RunShape& shape) const = 0;
  /// Of every step from facts().planned_from on.
  [[nodiscard]] virtual CommPlan comm_plan(const RunShape& shape) const = 0;
  [[nodiscard]] virtual Facts facts(const RunShape& /*shape*/) const { return {}; }
  /// What the rank holds of each unit.
  [[nodiscard]] virtual Contents contents(const RunShape& /*shape*/) const { return {}; }
  /// The same with these settings ("prefetch=0") changed.
  [[nodiscard]] virtual std::unique_ptr<Plans> with(const std::vector<std::string>& settings) const = 0;
  /// Lines under the plan: what else is known. Empty: nothing.
  [[nodiscard]] virtual std::string predict(const RunShape& /*shape*/) const { return ""; }
};

/// With settings of this type, the default ones unless others are given. Self: the class that derives from
/// it.
template <class Self, class O>
class PlansWith : public Plans {
 public:
  using Options = O;
  explicit PlansWith(O options = {}) : options_(std::move(options)) {}
  [[nodiscard]] FieldSet fields() final { return table().bind(options_); }
  [[nodiscard]] std::unique_ptr<Plans> with(const std::vector<std::string>& settings) const final {
    auto changed = std::make_unique<Self>(options_);
    set_all(changed->fields(), settings);
    return changed;
  }
  [[nodiscard]] const O& options() const { return options_; }

 protected:
  [[nodiscard]] virtual FieldTable<O> table() const = 0;
  O options_;
};

/// A strategy as somebody may run it, of several of which one asks which fits.
struct StrategyPlans {
  std::string folder;                      // the lesson's
  std::string name;                        // for messages
  std::shared_ptr<const Plans> plans;      // with `settings`
  std::vector<std::string> settings = {};  // "update=delayed", beyond the lesson's defaults
  bool advised = true;                     // where memory is short: it holds less than what stands before it
};

}  // namespace sc

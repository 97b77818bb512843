// Everything known about a strategy with its settings before a run: keys, bytes, operations, facts. No torch.
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

/// Slow links between ranks on the CPU, which are simulated.
struct SlowLinks {
  double message_ms = 0;  // messages between ranks arrive this much later
  // The limit of copies between device and host, in 10^6 bytes per second each way; 0: none.
  double copy_mbps = 0;
};

/// Throws InputError (exit 64): the run is impossible with this value of the key, and why.
[[noreturn]] void refuse_setting(const std::string& key, const std::string& why, const std::string& fix);

/// Applies settings, each as "key=value"; the keys must exist.
///   Errors  InputError (exit 64) for a value that a key does not take.
void set_all(const FieldSet& fields, const std::vector<std::string>& settings);

struct Facts {
  SlowLinks links;
  std::int64_t updates_a_step = 1;  // the unit of warm-up and decay
  std::int64_t planned_from = 0;    // the first step that comm_plan describes; at most 1
  Bytes pending = {};  // of a checkpoint besides states: in_flight(), and what state() marks as pending
  /// Settings with which a rank's device holds less ("params_at=disk parameters=sharded" belong together),
  /// the cheapest first.
  std::vector<std::string> smaller = {};
  std::string no_graph = {};  // why no CUDA graph can hold a step; empty: one can
  // Why it evaluates only at a run's end; empty: --eval-every may evaluate in between.
  std::string no_evaluation = {};
  std::vector<std::string> notes = {};  // settings that have no effect in this run
  std::string no_checkpoint = {};       // why its state between steps cannot be saved; empty: it can
  ContextCut cut = {};                  // which tokens of a row the rank has
  std::int64_t threads = 1;             // that launch a step's operations: cuBLAS has workspaces for each
};

/// Describes a strategy before a run, without device and ranks. Plans and facts are for the rank in `shape`.
///   Errors  InputError (exit 64) for settings that contradict each other or the shape.
class Plans {
 public:
  Plans() = default;
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;
  virtual ~Plans() = default;
  /// The settings by key. They refer to this object, which must outlive them.
  [[nodiscard]] virtual FieldSet fields() = 0;
  [[nodiscard]] virtual Mesh mesh(WorldSize world) const { return Mesh(world); }
  /// The number of virtual ranks that each rank stands for when micro-batches are dealt.
  [[nodiscard]] virtual std::int64_t virtual_ranks() const { return 1; }
  [[nodiscard]] virtual MemoryPlan memory_plan(const RunShape& shape) const = 0;
  /// The operations of every step from facts().planned_from on.
  [[nodiscard]] virtual CommPlan comm_plan(const RunShape& shape) const = 0;
  [[nodiscard]] virtual Facts facts(const RunShape& /*shape*/) const { return {}; }
  /// What the rank holds of each unit over time.
  [[nodiscard]] virtual Contents contents(const RunShape& /*shape*/) const { return {}; }
  /// A copy with these settings ("prefetch=0") changed.
  [[nodiscard]] virtual std::unique_ptr<Plans> with(const std::vector<std::string>& settings) const = 0;
  /// More predictions, printed as lines under the plan. May be empty.
  [[nodiscard]] virtual std::string predict(const RunShape& /*shape*/) const { return ""; }
};

/// Plans with settings of type O, default ones unless others are given. Self is the derived class.
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

/// One strategy with settings, for questions about which strategy fits.
struct StrategyPlans {
  std::string folder;                      // the lesson's folder
  std::string name;                        // for messages
  std::shared_ptr<const Plans> plans;      // plans with `settings` applied
  std::vector<std::string> settings = {};  // beyond the lesson's defaults, e.g. "update=delayed"
  bool advised = true;  // suggested if memory is short: it holds less than the strategies before it
};

}  // namespace sc

#include "common/run/continuation.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <map>

#include "common/base/check.h"
#include "common/comm/gather_text.h"
#include "common/config/workload_table.h"
#include "common/input/printable.h"
#include "common/optim/lr_schedule.h"
#include "common/run/resume.h"
#include "common/run/run_files.h"

namespace sc::detail {
namespace {

std::string joined(const std::string& some, const std::string& more) {
  return some.empty() || more.empty() ? some + more : some + ", " + more;
}

// The keys that change what `of` makes of a workload: each that does so alone, or all that differ if only
// several together do. There is no list of such keys; what is computed decides.
template <class Of>
std::string keys_that_change(const Workload& then, const Workload& now, const Of& of) {
  const std::map<std::string, std::string> before = values_of(then);
  std::string some, all;
  for (const auto& [key, value] : values_of(now)) {
    if (before.at(key) == value) continue;
    const std::string said = fmt::format("{} is {} now and was {}", key, value, before.at(key));
    Workload changed = then;
    workload_fields().bind(changed).set(key, {.form = Value::Form::flag, .text = value}, key);
    if (of(changed) != of(then)) some = joined(some, said);
    all = joined(all, said);
  }
  return some.empty() ? all : some;
}

// How the file's tokens differ from those trained on before; empty if they do not.A moved file is the same.
std::string other_tokens(const TrainJob& job, const checkpoint::Manifest& from, const Path& tokens,
                         Communicator& comm) {
  std::string differs;
  if (comm.rank() == Rank{0}) {
    const checkpoint::DataFingerprint now = fingerprint_of(tokens), then = from.data;
    if (now != then)
      differs = fmt::format(
          "it holds other tokens than the file that was trained on: {} bytes with the sum {:016x}, "
          "which was {} with {:016x}",
          now.bytes, now.sum, then.bytes, then.sum);
  }
  differs = broadcast_string(comm, differs);
  const std::vector<std::string>& may_differ = job.line.checkpoints.may_differ;
  // The tokens of a file also depend on tokenizer and packing.
  const auto of_data = [](const std::string& key) { return key.starts_with("data."); };
  if (differs.empty() || std::ranges::any_of(may_differ, of_data)) return differs;
  throw InputError(ExitCode::data, tokens.string(), differs,
                   "that file; or, if other data are meant, --resume-with data.source");
}

// Why the run begins again with the first row; empty if a position still means the same row.
std::string why_anew(const Workload& then, const Workload& now, std::int64_t tokens, bool other_file) {
  const auto order = [tokens](const Workload& w) { return row_order(w, tokens); };
  std::string why = other_file ? "data.source holds other tokens now" : "";
  if (order(then) != order(now)) why = joined(why, keys_that_change(then, now, order));
  return why;
}

// Two numbers as texts with the fewest digits that differ.
std::pair<std::string, std::string> told_apart(double a, double b) {
  for (int digits = 3;; ++digits) {
    const std::string one = fmt::format("{:.{}g}", a, digits), other = fmt::format("{:.{}g}", b, digits);
    if (one != other || digits == std::numeric_limits<double>::max_digits10) return {one, other};
  }
}

// A remark if the learning rate jumps at the first step, as warm-up or decay has another length now.
std::string other_learning_rate(const TrainJob& job, const Workload& then) {
  const std::int64_t step = job.first_step;
  const auto rate = [&](const Workload& w) {
    RunShape of = job.shape;
    of.workload = w;
    std::int64_t updates = 1;
    try {
      updates = job.lesson.plans.facts(of).updates_a_step;
      // This lesson could not have run that workload, so the lesson that did counted steps.
    } catch (const InputError&) {
    }
    return learning_rate(w.optim, step * updates, w.steps * updates);
  };
  const Workload& now = job.shape.workload;
  const double before = rate(then), here = rate(now);
  if (before == here || step >= now.steps) return "";
  const auto [is, was] = told_apart(here, before);
  return fmt::format("the learning rate of step {} is {}, where the checkpoint's keys gave {}: {}\n", step,
                     is, was, keys_that_change(then, now, rate));
}

}  // namespace

// Counts the stored rows instead of steps x batch.global, because earlier steps may have had other batches.
Continuation continuation_of(const TrainJob& job, const checkpoint::Manifest& from, const Dataset& data,
                             Communicator& comm) {
  const Workload then = workload_of_texts(from.workload, checkpoint::kManifestName),
                 &now = job.shape.workload;
  const bool other_file = !other_tokens(job, from, data.tokens_path(), comm).empty();
  const std::string anew = why_anew(then, now, data.num_tokens(), other_file);
  Continuation on{
      .rows = from.rows, .tokens = from.tokens, .last_rows = from.rows >= now.batch.global, .says = ""};
  if (!anew.empty()) {
    on.rows = 0, on.last_rows = false;
    on.says = fmt::format("the order of rows begins anew, at its first row: {}\n", anew);
  }
  on.says += other_learning_rate(job, then);
  if (!from.arithmetic.empty() && from.arithmetic != job.arithmetic)
    on.says += fmt::format("from here on sums are added in another order: by {}, before by {}\n",
                           job.arithmetic, shown(from.arithmetic));
  return on;
}

}  // namespace sc::detail

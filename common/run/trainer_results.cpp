// What a run does with the trained model: losses of texts, a sample, the weights. None is made if numbers are
// not finite.
#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <iostream>

#include "common/records/progress.h"
#include "common/run/sample.h"
#include "common/run/trainer.h"
#include "common/strategy/nonfinite.h"
#include "common/strategy/weights.h"

namespace sc::detail {

std::optional<double> Trainer::validation_loss(std::int64_t done) {
  on_.world.comm().set_phase("eval");
  const std::span<const Batch> batches = loader_.validation();
  if (batches.empty()) return {};
  const double loss = evaluate_rounds(*strategy_, on_.world.comm(), [&](std::int64_t round) {
    end_if_asked(done);
    const auto next = std::min(static_cast<std::size_t>(round), batches.size());
    return batches.subspan(next, std::min<std::size_t>(1, batches.size() - next));
  });
  const std::string& named = job_.line.evaluation.validation;
  require_finite(loss, fmt::format("validation ({})", named.empty() ? shape_.workload.data.source : named));
  return loss;
}

void Trainer::require_finite(double loss, const std::string& where) {
  if (std::isfinite(loss)) return;
  on_.world.comm().set_phase("check");
  const std::string weight =
      nonfinite_weight(*strategy_, strategy_->layout(), on_.world.comm(), /*exact=*/false);
  stop_or_warn(shape_,
               fmt::format("{}: the loss is not finite{}", where,
                           weight.empty() ? ", though all weights are" : ": neither is " + weight),
               "a checkpoint of before it, then a smaller optim.lr");
}

void Trainer::evaluate() {
  known_.validation_loss = validation_loss(shape_.workload.steps);
  if (test_) {
    const Rows& rows = test_->rows();
    const auto next = [&](std::int64_t round) {
      end_if_asked(shape_.workload.steps);
      return loader_.rows(rows, round);
    };
    known_.test = TestRecord{{}, rows.count(), evaluate_rounds(*strategy_, on_.world.comm(), next)};
    require_finite(known_.test->loss, "--test " + job_.line.evaluation.test);
    if (job_.speaks()) known_.test->text = record_of_file(job_.line.evaluation.test, test_->tokens_path());
  }
}

// Writes the text of --sample, or of the default screen. If the model's output is not finite, the latter is
// left out without an error, because nobody asked for it.
void Trainer::write_text() {
  const EvaluationFlags& asked = job_.line.evaluation;
  const std::int64_t tokens = asked.sample.value_or(observer_.steps().empty() ? 0 : unasked_);
  if (tokens == 0) return;
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(shape_.workload.data.tokenizer);
  const double temperature = asked.temperature.value_or(1);
  const Sample made = make_sample(*strategy_, {shape_, prompt_, tokenizer->vocab(), temperature}, on_.ledger,
                                  on_.world.comm(), tokens);
  if (!asked.sample) {
    if (!made.nonfinite_unit) written_ = format_written(made, *tokenizer, look_here());
    return;
  }
  if (made.nonfinite_unit)
    stop_or_warn(
        shape_,
        fmt::format("--sample: after {} tokens of {} the model's output is not finite, first seen in unit {}",
                    made.made.size(), asked.prompt ? "--prompt" : "the text's beginning as its prompt",
                    *made.nonfinite_unit),
        "a checkpoint of before it, then a smaller optim.lr");
  if (job_.speaks()) std::cout << "\n" << format_sample(made, *tokenizer, shape_.workload.seed, temperature);
}

void Trainer::save_weights_if_finite() {
  RecordingCommunicator& comm = on_.world.comm();
  const std::string weight = nonfinite_weight(*strategy_, strategy_->layout(), comm, /*exact=*/true);
  if (!weight.empty())
    stop_or_warn(shape_, fmt::format("--save {}: {} is not finite", job_.line.save, weight),
                 "a checkpoint of before it, then a smaller optim.lr; nothing was written");
  const auto writing = files_.writing();
  save_weights(*strategy_, strategy_->layout(), comm, files_, job_.line.save, [this] { files_.meet(); });
}

}  // namespace sc::detail

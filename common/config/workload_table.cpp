#include "common/config/workload_table.h"

#include <spdlog/fmt/fmt.h>

#include "common/base/check.h"
#include "common/config/other_names.h"
#include "common/input/printable.h"

namespace sc {
namespace {

// The largest values of single keys; validate() bounds their products.
constexpr std::int64_t kMaxRows = 1 << 24;
constexpr std::int64_t kMaxTokens = 1 << 20;

}  // namespace

// NOLINTNEXTLINE(readability-function-size): a table
FieldTable<Workload> workload_fields() {
  using W = Workload;
  FieldTable<W> table;
  table.add({"model.layers", "blocks", "transformer blocks"}, integer(1, 1024), &W::model, &GptConfig::layers)
      .add({"model.heads", "", "attention heads; must divide model.width"}, integer(1, 1024), &W::model,
           &GptConfig::heads)
      .add({"model.width", "elements", "size of a token's vector, d"}, integer(1, 1 << 16), &W::model,
           &GptConfig::width)
      .add({"model.context", "tokens", "rows of the position embedding: the longest sequence"},
           integer(1, kMaxTokens), &W::model, &GptConfig::context)
      .add({"model.vocab", "tokens", "tokens the data may contain; stored rounded up to a multiple of 128"},
           integer(2, kMaxRows), &W::model, &GptConfig::vocab)
      .add({"model.tied", "", "the head uses the token embedding's matrix"}, on_off(), &W::model,
           &GptConfig::tied);
  table
      .add({"data.source", "", "austen, a token file, or a text file (--data)"}, text(), &W::data,
           &DataConfig::source)
      .add({"data.tokenizer", "",
            "how text becomes tokens: 256 bytes and an end mark, or GPT-2's 50257 pieces"},
           one_of({"byte", "gpt2"}), &W::data, &DataConfig::tokenizer)
      .add({"data.packing", "",
            "how documents become rows: end to end, or padded with the padding masked from the loss or not"},
           choice<Packing>({{"pack", Packing::pack},
                            {"pad_masked", Packing::pad_masked},
                            {"pad_unmasked", Packing::pad_unmasked}}),
           &W::data, &DataConfig::packing)
      .add({"data.validation_fraction", "", "share of the text, its tail, that is never trained on"},
           real({.low = 0, .high = 0.5}), &W::data, &DataConfig::validation_fraction)
      .add({"data.validation_rows", "rows",
            "rows of one evaluation, over all ranks; which ones the data decides, not batch.micro"},
           integer(1, kMaxRows), &W::data, &DataConfig::validation_rows);
  table
      .add({"batch.sequence", "tokens", "tokens of a row, T; at most model.context"}, integer(1, kMaxTokens),
           &W::batch, &BatchConfig::sequence)
      .add({"batch.global", "rows",
            "rows of one optimizer step, over all ranks; the same for every number of ranks"},
           integer(1, kMaxRows), &W::batch, &BatchConfig::global)
      .add({"batch.micro", "rows", "rows of one forward and backward of a rank"}, integer(1, kMaxRows),
           &W::batch, &BatchConfig::micro);
  table
      .add({"optim.lr", "", "peak learning rate of AdamW"}, real({.low = 0, .high = 10, .open_low = true}),
           &W::optim, &OptimConfig::lr)
      .add({"optim.beta1", "", "decay of the momentum"}, real({.low = 0, .high = 1, .open_high = true}),
           &W::optim, &OptimConfig::beta1)
      .add({"optim.beta2", "", "decay of the variance"}, real({.low = 0, .high = 1, .open_high = true}),
           &W::optim, &OptimConfig::beta2)
      .add({"optim.eps", "", "added to the root of the variance"},
           real({.low = 0, .high = 1, .open_low = true}), &W::optim, &OptimConfig::eps)
      .add({"optim.weight_decay", "", "decoupled decay of the matrices; biases and norms have none"},
           real({.low = 0, .high = 10}), &W::optim, &OptimConfig::weight_decay)
      .add({"optim.clip", "", "largest global norm of the gradient; 0 = off"}, real({.low = 0}), &W::optim,
           &OptimConfig::clip)
      .add({"optim.schedule", "", "the learning rate's way from its peak to its end"},
           choice<LrSchedule>({{"cosine", LrSchedule::cosine},
                               {"linear", LrSchedule::linear},
                               {"constant", LrSchedule::constant}}),
           &W::optim, &OptimConfig::schedule)
      .add({"optim.warmup_steps", "steps", "steps of the linear rise to the peak"}, integer(0, kMaxRows),
           &W::optim, &OptimConfig::warmup_steps)
      .add({"optim.min_lr_fraction", "", "the schedule ends at optim.lr times this"},
           real({.low = 0, .high = 1}), &W::optim, &OptimConfig::min_lr_fraction)
      .add({"optim.nonfinite", "",
            "what is not finite: stop; or skip an update (ten in a row stop) and warn of a result"},
           choice<OnNonFinite>({{"stop", OnNonFinite::stop}, {"skip", OnNonFinite::skip}}), &W::optim,
           &OptimConfig::nonfinite);
  table
      .add({"precision.dtype", "",
            "of parameters and activations; 16-bit types add an fp32 master and need a GPU to train"},
           choice<DType>({{"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}}), &W::precision,
           &PrecisionConfig::dtype)
      .add({"precision.grad_dtype", "", "of the gradients: as precision.dtype, or fp32"},
           choice<DTypeRule>({{"same", DTypeRule::same}, {"fp32", DTypeRule::fp32}}), &W::precision,
           &PrecisionConfig::grad_rule)
      .add({"precision.reduce_dtype", "",
            "of the sums over ranks: as the gradients, or fp32, into which they are converted on their way"},
           choice<DTypeRule>({{"same", DTypeRule::same}, {"fp32", DTypeRule::fp32}}), &W::precision,
           &PrecisionConfig::reduce_rule);
  table
      .add({"activations", "",
            "what forward keeps for backward: all, all but GELU's output, or each block's input alone"},
           choice<Activations>({{"keep", Activations::keep},
                                {"recompute_gelu", Activations::recompute_gelu},
                                {"recompute", Activations::recompute}}),
           &W::activations)
      .add({"head_chunk", "tokens", "tokens whose logits exist at once"}, integer(1, kMaxRows),
           &W::head_chunk)
      .add({"steps", "steps", "optimizer steps of the run (--steps); 0: it evaluates and trains nothing"},
           integer(0, 1'000'000'000), &W::steps)
      .add({"seed", "", "of the initial parameters and of the order of the data (--seed)"}, seed(), &W::seed);
  return table;
}

std::string workload_text(const Workload& workload) {
  Workload copy = workload;
  return workload_fields().bind(copy).canonical_text();
}

std::string workload_hash(const Workload& workload) {
  Workload copy = workload;
  return workload_fields().bind(copy).hash();
}

Workload workload_of_texts(const std::map<std::string, std::string>& written, const std::string& where) {
  const std::map<std::string, std::string> texts = in_todays_keys(written);
  constexpr std::size_t kMostWords = 300;
  Workload workload;
  const FieldSet fields = workload_fields().bind(workload);
  for (const Field& field : fields.fields()) {
    const auto found = texts.find(field.path);
    if (found == texts.end()) continue;
    try {
      field.set({.form = Value::Form::flag, .text = found->second});
    } catch (const FieldError& error) {
      throw InputError(ExitCode::data, where,
                       fmt::format("\"workload.{}\": {}", field.path, shown(error.what(), kMostWords)),
                       "use another one: this is of another program, or damaged");
    }
  }
  resolve_dtypes(workload.precision);
  return workload;
}

void resolve_dtypes(PrecisionConfig& precision) {
  precision.grad_dtype = precision.grad_rule == DTypeRule::fp32 ? DType::f32 : precision.dtype;
  precision.reduce_dtype = precision.reduce_rule == DTypeRule::fp32 ? DType::f32 : precision.grad_dtype;
  // In fp32 both rules give one dtype, so both must become one configuration with one hash.
  if (precision.dtype == DType::f32) precision.grad_rule = DTypeRule::same;
  if (precision.grad_dtype == DType::f32) precision.reduce_rule = DTypeRule::same;
}

}  // namespace sc

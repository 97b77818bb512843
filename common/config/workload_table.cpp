#include "common/config/workload_table.h"

#include <spdlog/fmt/fmt.h>

#include "common/base/check.h"
#include "common/config/other_names.h"
#include "common/input/printable.h"

namespace sc {
namespace {

// Bounds of single keys; validate() looks at their products.
constexpr std::int64_t kMaxRows = 1 << 24;
constexpr std::int64_t kMaxTokens = 1 << 20;

void add_model(FieldTable<Workload>& table) {
  table.add(
      {"model.layers", "blocks", "transformer blocks"}, integer(1, 1024),
      [](auto& w) -> auto& { return w.model.layers; });
  table.add(
      {"model.heads", "", "attention heads; must divide model.width"}, integer(1, 1024),
      [](auto& w) -> auto& { return w.model.heads; });
  table.add(
      {"model.width", "elements", "size of a token's vector, d"}, integer(1, 1 << 16),
      [](auto& w) -> auto& { return w.model.width; });
  table.add(
      {"model.context", "tokens", "rows of the position embedding: the longest sequence"},
      integer(1, kMaxTokens), [](auto& w) -> auto& { return w.model.context; });
  table.add(
      {"model.vocab", "tokens", "tokens the data may contain; stored rounded up to a multiple of 128"},
      integer(2, kMaxRows), [](auto& w) -> auto& { return w.model.vocab; });
  table.add(
      {"model.tied", "", "the head uses the token embedding's matrix"}, on_off(),
      [](auto& w) -> auto& { return w.model.tied; });
}

void add_data(FieldTable<Workload>& table) {
  table.add(
      {"data.source", "", "austen, a token file, or a text file (--data)"}, text(),
      [](auto& w) -> auto& { return w.data.source; });
  table.add(
      {"data.tokenizer", "", "how text becomes tokens: 256 bytes and an end mark, or GPT-2's 50257 pieces"},
      one_of({"byte", "gpt2"}), [](auto& w) -> auto& { return w.data.tokenizer; });
  table.add(
      {"data.packing", "",
       "how documents become rows: end to end, or padded with the padding masked from the loss or not"},
      choice<Packing>({{"pack", Packing::pack},
                       {"pad_masked", Packing::pad_masked},
                       {"pad_unmasked", Packing::pad_unmasked}}),
      [](auto& w) -> auto& { return w.data.packing; });
  table.add(
      {"data.validation_fraction", "", "share of the text, its tail, that is never trained on"},
      real({.low = 0, .high = 0.5}), [](auto& w) -> auto& { return w.data.validation_fraction; });
  table.add(
      {"data.validation_rows", "rows",
       "rows of one evaluation, over all ranks; which ones the data decides, not batch.micro"},
      integer(1, kMaxRows), [](auto& w) -> auto& { return w.data.validation_rows; });
}

void add_batch(FieldTable<Workload>& table) {
  table.add(
      {"batch.sequence", "tokens", "tokens of a row, T; at most model.context"}, integer(1, kMaxTokens),
      [](auto& w) -> auto& { return w.batch.sequence; });
  table.add(
      {"batch.global", "rows",
       "rows of one optimizer step, over all ranks; the same for every number of ranks"},
      integer(1, kMaxRows), [](auto& w) -> auto& { return w.batch.global; });
  table.add(
      {"batch.micro", "rows", "rows of one forward and backward of a rank"}, integer(1, kMaxRows),
      [](auto& w) -> auto& { return w.batch.micro; });
}

void add_optim(FieldTable<Workload>& table) {
  table.add(
      {"optim.lr", "", "peak learning rate of AdamW"}, real({.low = 0, .high = 10, .open_low = true}),
      [](auto& w) -> auto& { return w.optim.lr; });
  table.add(
      {"optim.beta1", "", "decay of the momentum"}, real({.low = 0, .high = 1, .open_high = true}),
      [](auto& w) -> auto& { return w.optim.beta1; });
  table.add(
      {"optim.beta2", "", "decay of the variance"}, real({.low = 0, .high = 1, .open_high = true}),
      [](auto& w) -> auto& { return w.optim.beta2; });
  table.add(
      {"optim.eps", "", "added to the root of the variance"}, real({.low = 0, .high = 1, .open_low = true}),
      [](auto& w) -> auto& { return w.optim.eps; });
  table.add(
      {"optim.weight_decay", "", "decoupled decay of the matrices; biases and norms have none"},
      real({.low = 0, .high = 10}), [](auto& w) -> auto& { return w.optim.weight_decay; });
  table.add(
      {"optim.clip", "", "largest global norm of the gradient; 0 = off"}, real({.low = 0}),
      [](auto& w) -> auto& { return w.optim.clip; });
  table.add(
      {"optim.schedule", "", "the learning rate's way from its peak to its end"},
      choice<LrSchedule>({{"cosine", LrSchedule::cosine},
                          {"linear", LrSchedule::linear},
                          {"constant", LrSchedule::constant}}),
      [](auto& w) -> auto& { return w.optim.schedule; });
  table.add(
      {"optim.warmup_steps", "steps", "steps of the linear rise to the peak"}, integer(0, kMaxRows),
      [](auto& w) -> auto& { return w.optim.warmup_steps; });
  table.add(
      {"optim.min_lr_fraction", "", "the schedule ends at optim.lr times this"}, real({.low = 0, .high = 1}),
      [](auto& w) -> auto& { return w.optim.min_lr_fraction; });
  table.add(
      {"optim.nonfinite", "",
       "what is not finite: stop; or skip an update (ten in a row stop) and warn of a result"},
      choice<OnNonFinite>({{"stop", OnNonFinite::stop}, {"skip", OnNonFinite::skip}}),
      [](auto& w) -> auto& { return w.optim.nonfinite; });
}

void add_precision(FieldTable<Workload>& table) {
  table.add(
      {"precision.dtype", "",
       "of parameters and activations; 16-bit types add an fp32 master and need a GPU to train"},
      choice<DType>({{"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}}),
      [](auto& w) -> auto& { return w.precision.dtype; });
  table.add(
      {"precision.grad_dtype", "", "of the gradients: as precision.dtype, or fp32"},
      choice<DTypeRule>({{"same", DTypeRule::same}, {"fp32", DTypeRule::fp32}}),
      [](auto& w) -> auto& { return w.precision.grad_rule; });
  table.add(
      {"precision.reduce_dtype", "",
       "of the sums over ranks: as the gradients, or fp32, into which they are converted on their way"},
      choice<DTypeRule>({{"same", DTypeRule::same}, {"fp32", DTypeRule::fp32}}),
      [](auto& w) -> auto& { return w.precision.reduce_rule; });
}

void add_run(FieldTable<Workload>& table) {
  table.add(
      {"activations", "",
       "what forward keeps for backward: all, all but GELU's output, or each block's input alone"},
      choice<Activations>({{"keep", Activations::keep},
                           {"recompute_gelu", Activations::recompute_gelu},
                           {"recompute", Activations::recompute}}),
      [](auto& w) -> auto& { return w.activations; });
  table.add(
      {"head_chunk", "tokens", "tokens whose logits exist at once"}, integer(1, kMaxRows),
      [](auto& w) -> auto& { return w.head_chunk; });
  table.add(
      {"steps", "steps", "optimizer steps of the run (--steps); 0: it evaluates and trains nothing"},
      integer(0, 1'000'000'000), [](auto& w) -> auto& { return w.steps; });
  table.add(
      {"seed", "", "of the initial parameters and of the order of the data (--seed)"}, seed(),
      [](auto& w) -> auto& { return w.seed; });
}

}  // namespace

FieldTable<Workload> workload_fields() {
  FieldTable<Workload> table;
  add_model(table);
  add_data(table);
  add_batch(table);
  add_optim(table);
  add_precision(table);
  add_run(table);
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
  // Where both rules give the same dtype they are one configuration, and must have one hash.
  if (precision.dtype == DType::f32) precision.grad_rule = DTypeRule::same;
  if (precision.grad_dtype == DType::f32) precision.reduce_rule = DTypeRule::same;
}

}  // namespace sc

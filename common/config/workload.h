// What is trained: the part of a run that is the same for every strategy and every number of ranks
// (docs/config.md). Two records compare only when the hashes of these resolved values are equal. No torch.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/types.h"

namespace sc {

/// GPT-2's shape. Defaults are for keys that a workload file leaves out: tests/workloads/four_blocks.json's.
struct GptConfig {
  std::int64_t layers = 4;     // transformer blocks, L
  std::int64_t heads = 4;      // attention heads; width must be a multiple
  std::int64_t width = 128;    // d
  std::int64_t context = 128;  // rows of the position embedding: the longest sequence
  std::int64_t vocab = 257;    // tokens the data may contain; logits of padding columns are masked
  bool tied = true;            // the head uses the token embedding's matrix

  /// Rows of wte and of the head: vocab rounded up to a multiple of 128.
  [[nodiscard]] std::int64_t vocab_padded() const { return round_up(vocab, 128); }
  [[nodiscard]] std::int64_t head_dim() const { return width / heads; }
  /// Units of the flat-vector model: embeddings, blocks, final norm (and an untied head).
  [[nodiscard]] std::int64_t num_units() const { return layers + 2; }
  bool operator==(const GptConfig&) const = default;
};

enum class Activations { keep, recompute_gelu, recompute };
enum class Packing { pack, pad_masked, pad_unmasked };
enum class OnNonFinite { stop, skip };
enum class LrSchedule { cosine, linear, constant };

struct DataConfig {
  std::string source = "austen";      // austen | a token file | a text file (--data)
  std::string tokenizer = "byte";     // byte | gpt2
  Packing packing = Packing::pack;    // how documents become rows of T tokens
  double validation_fraction = 0.05;  // the tail of the text
  std::int64_t validation_rows = 8;   // rows of one evaluation, over all ranks
};

struct BatchConfig {
  std::int64_t sequence = 128;  // T: tokens a row
  std::int64_t global = 12;     // rows of one optimizer step, over all ranks
  std::int64_t micro = 1;       // rows of one forward and backward
};

struct OptimConfig {
  double lr = 2e-3;  // peak learning rate
  double beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
  double weight_decay = 0.01;  // on the matrices only
  double clip = 1.0;           // global norm; 0 = off
  LrSchedule schedule = LrSchedule::cosine;
  std::int64_t warmup_steps = 40;
  double min_lr_fraction = 0.1;               // the schedule ends at lr * this
  OnNonFinite nonfinite = OnNonFinite::stop;  // a step whose loss or gradient is not finite
};

enum class DTypeRule { same, fp32 };  // same: as precision.dtype (gradients), as the gradients (sums)

struct PrecisionConfig {
  DType dtype = DType::f32;  // parameters, activations
  DTypeRule grad_rule = DTypeRule::same, reduce_rule = DTypeRule::same;
  DType grad_dtype = DType::f32;    // resolved from grad_rule (workload_table.h, resolve_dtypes)
  DType reduce_dtype = DType::f32;  // what the sums over ranks travel in; resolved from reduce_rule
  [[nodiscard]] bool has_master() const { return dtype != DType::f32; }
};

struct Workload {
  GptConfig model;
  DataConfig data;
  BatchConfig batch;
  OptimConfig optim;
  PrecisionConfig precision;
  Activations activations = Activations::keep;
  std::int64_t head_chunk = 4096;  // tokens whose logits exist at once
  std::int64_t steps = 400;
  std::uint64_t seed = 1;
};

}  // namespace sc

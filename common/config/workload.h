// What is trained: the part of a run that is the same for every strategy and every number of ranks
// (docs/config.md). Two records compare only when the hashes of these resolved values are equal. No torch.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/types.h"

namespace sc {

/// GPT-2's shape. A workload file may leave keys out; their defaults are those of
/// tests/workloads/four_blocks.json.
struct GptConfig {
  std::int64_t layers = 4;     // transformer blocks, L
  std::int64_t heads = 4;      // attention heads; `width` must be a multiple
  std::int64_t width = 128;    // d, the length of a token's vector
  std::int64_t context = 128;  // rows of the position embedding: the longest sequence
  std::int64_t vocab = 257;    // number of different tokens; logits of padding columns are masked
  bool tied = true;            // the head uses the token embedding's matrix

  /// Rows of the token embedding and of the head: the vocabulary rounded up to a multiple of 128.
  [[nodiscard]] std::int64_t vocab_padded() const { return round_up(vocab, 128); }
  [[nodiscard]] std::int64_t head_dim() const { return width / heads; }
  /// The number of units: the embeddings, each block, and the final norm (with an untied head).
  [[nodiscard]] std::int64_t num_units() const { return layers + 2; }
  bool operator==(const GptConfig&) const = default;
};

enum class Activations { keep, recompute_gelu, recompute };
enum class Packing { pack, pad_masked, pad_unmasked };
enum class OnNonFinite { stop, skip };
enum class LrSchedule { cosine, linear, constant };

struct DataConfig {
  std::string source = "austen";      // austen, a token file, or a text file (--data)
  std::string tokenizer = "byte";     // byte | gpt2
  Packing packing = Packing::pack;    // how documents become rows of T tokens
  double validation_fraction = 0.05;  // the tail of the text
  std::int64_t validation_rows = 8;   // rows of one evaluation, summed over ranks
};

struct BatchConfig {
  std::int64_t sequence = 128;  // T: tokens a row
  std::int64_t global = 12;     // rows of one optimizer step, summed over ranks
  std::int64_t micro = 1;       // rows of one forward and backward
};

struct OptimConfig {
  double lr = 2e-3;  // peak learning rate
  double beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
  double weight_decay = 0.01;  // applies to matrices only
  double clip = 1.0;           // largest global norm of the gradients; 0: no clipping
  LrSchedule schedule = LrSchedule::cosine;
  std::int64_t warmup_steps = 40;
  double min_lr_fraction = 0.1;               // the schedule ends at lr * this
  OnNonFinite nonfinite = OnNonFinite::stop;  // what to do if a step's loss or gradient is not finite
};

// fp32, or the same as what it is made from: gradients follow the parameters' dtype, sums the gradients'.
enum class DTypeRule { same, fp32 };

struct PrecisionConfig {
  DType dtype = DType::f32;  // of parameters and activations
  DTypeRule grad_rule = DTypeRule::same, reduce_rule = DTypeRule::same;
  DType grad_dtype = DType::f32;    // derived from grad_rule by resolve_dtypes (workload_table.h)
  DType reduce_dtype = DType::f32;  // of sums over ranks; derived from reduce_rule
  [[nodiscard]] bool has_master() const { return dtype != DType::f32; }
};

struct Workload {
  GptConfig model;
  DataConfig data;
  BatchConfig batch;
  OptimConfig optim;
  PrecisionConfig precision;
  Activations activations = Activations::keep;
  std::int64_t head_chunk = 4096;  // tokens whose logits exist at the same time
  std::int64_t steps = 400;
  std::uint64_t seed = 1;
};

}  // namespace sc

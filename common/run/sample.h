// Text that a trained model makes: --sample.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/data/dataset.h"
#include "common/model/gpt.h"
#include "common/records/screen.h"

namespace sc {
class Strategy;
}  // namespace sc

namespace sc::detail {

/// A model's forward alone, for one row of T = batch.sequence tokens.
///   Memory  from the ledger: all parameters in precision.dtype, the activations of one block, a workspace.
///           What the last norm and the head's one row take comes from LibTorch's allocator.
class TextModel {
 public:
  TextModel(const RunShape& run, const ParamLayout& layout, Ledger& ledger);
  /// Any dtype and device; to be called for every unit.
  void set_unit(int unit, const UnitTensors& values);
  /// Logits of the token after the last of `tokens`, of which the last T count: [vocab] fp32 in host memory.
  [[nodiscard]] at::Tensor next_logits(std::span<const std::int64_t> tokens);
  /// In next_logits() of the same tokens: the first unit whose output is not finite; the last one if only the
  /// logits are not.
  [[nodiscard]] int first_nonfinite_unit(std::span<const std::int64_t> tokens);

 private:
  at::Tensor forward(std::span<const std::int64_t> tokens,
                     const std::function<void(int unit, const at::Tensor& x)>& after);

  Gpt gpt_;
  std::vector<UnitTensors> params_;
  at::Tensor tokens_;  // [1, T] i64
  at::Tensor x_[2];    // [1, T, d]: a block's input and output, in turn
  BlockSaved saved_;
  Workspace ws_;
};

struct Sample {
  std::vector<TokenId> prompt, made;
  std::optional<int> nonfinite_unit = {};  // the text ends where the model's output was not finite
};

/// The first kPromptTokens of the first row, at most half of it.
inline constexpr std::size_t kPromptTokens = 32;
std::vector<TokenId> beginning_of(const Rows& rows);

/// `count` tokens after the prompt, each drawn from the model's distribution at `temperature` among the first
/// `vocab` tokens, by a random number that is a function of (seed, position); at temperature 0 the likeliest.
/// Collective: rank 0 computes with parameters that it has gathered from all ranks (for_each_whole_unit),
/// whatever the strategy shards, and sends every token to the others, so that nobody waits for long in one
/// operation.
///   Errors  InputError 69 if the parameters do not fit below --memory-cap a second time.
struct SampleSource {
  const RunShape& shape;
  std::vector<TokenId> prompt;  // empty: the text begins with end-of-text
  std::int64_t vocab = 0;       // tokens that have a text
  double temperature = 1;
};
Sample make_sample(Strategy& strategy, const SampleSource& source, Ledger& ledger, Communicator& comm,
                   std::int64_t count);

/// How many tokens a run shows of its own accord: some on the CPU, where there is a validation text to begin
/// with and a core makes them in about three seconds; else 0.
std::int64_t tokens_to_show(const RunShape& shape, const Dataset& data);

/// A line of the default screen, without line breaks: "it writes: ", and in quotes prompt and text as below.
std::string format_written(const Sample& sample, const Tokenizer& tokenizer, Look look);

/// What stands on the screen: "sample ...:" and the text, with " | " between prompt and what was made.
/// Control characters other than line breaks become '?', bytes that are no character U+FFFD.
std::string format_sample(const Sample& sample, const Tokenizer& tokenizer, std::uint64_t seed,
                          double temperature);

}  // namespace sc::detail

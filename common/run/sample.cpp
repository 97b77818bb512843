#include "common/run/sample.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/zeros.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "common/base/counter_random.h"
#include "common/input/utf8.h"
#include "common/model/activation_buffers.h"
#include "common/model/unit_views.h"
#include "common/strategy/strategy.h"
#include "common/strategy/weights.h"

namespace sc::detail {
namespace {

// The run's shape for one row. Nothing is recomputed, because there is no backward.
RunShape one_row(const RunShape& run) {
  RunShape one = run;
  one.workload.batch.micro = 1;
  one.workload.activations = Activations::keep;
  one.workload.head_chunk = 1;
  return one;
}

// The token at which the running sum of the distribution exceeds `u`, a number in [0, 1).
std::int64_t draw(const at::Tensor& logits, std::int64_t vocab, double temperature, double u) {
  const float* x = logits.const_data_ptr<float>();
  const float* likeliest = std::max_element(x, x + vocab);
  if (temperature == 0) return likeliest - x;
  const double most = *likeliest;
  std::vector<double> sums(static_cast<std::size_t>(vocab));
  double sum = 0;
  for (std::int64_t i = 0; i < vocab; ++i)
    sums[static_cast<std::size_t>(i)] = sum += std::exp((x[i] - most) / temperature);
  const auto found = std::upper_bound(sums.begin(), sums.end(), u * sum);
  return std::min<std::int64_t>(found - sums.begin(), vocab - 1);
}

std::string without_control_characters(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < ' ' && c != '\n') || byte == 0x7f) c = '?';
  }
  return text;
}

std::string text_of(const Sample& sample, const Tokenizer& tokenizer) {
  Utf8Stream text;
  std::string shown;
  const auto add = [&](const std::vector<TokenId>& tokens) {
    for (const TokenId token : tokens)
      shown += token < tokenizer.vocab() ? text.push(tokenizer.decode(std::span(&token, 1)))
                                         : fmt::format("<{}>", token);
  };
  add(sample.prompt);
  shown += " | ";
  add(sample.made);
  shown += text.finish();
  return without_control_characters(std::move(shown));
}

}  // namespace

TextModel::TextModel(const RunShape& run, const ParamLayout& layout, Ledger& ledger)
    : gpt_(one_row(run), layout) {
  const PartSizes& sizes = gpt_.sizes();
  const DType dtype = run.workload.precision.dtype;
  const auto arena = [&](Segment segment) {
    const std::int64_t size = layout.arena_size(segment).value();
    return size == 0 ? at::Tensor() : ledger.zeros(Purpose::parameters, "sample_params", {size}, dtype);
  };
  params_ = unit_views(layout, arena(Segment::sharded), arena(Segment::whole));
  tokens_ = ledger.zeros(Purpose::workspace, "sample_tokens", {1, sizes.T}, DType::i64);
  for (at::Tensor& x : x_) {
    x = ledger.zeros(Purpose::activations, "sample_x", {1, sizes.T, sizes.d}, dtype);
  }
  saved_ = make_saved(gpt_, ledger);
  ws_ = make_workspace(gpt_, ledger);
}

void TextModel::set_unit(int unit, const UnitTensors& values) {
  UnitTensors& mine = params_[static_cast<std::size_t>(unit)];
  if (mine.sharded.defined()) mine.sharded.copy_(values.sharded);
  if (mine.whole.defined() && mine.whole.numel() > 0) mine.whole.copy_(values.whole);
}

// Runs all units but the head over the last tokens. Attention only looks back, so the row may be longer.
// `after` receives every unit's output for those tokens.
at::Tensor TextModel::forward(std::span<const std::int64_t> tokens,
                              const std::function<void(int unit, const at::Tensor& x)>& after) {
  const auto row = static_cast<std::size_t>(gpt_.sizes().T);
  const std::span<const std::int64_t> seen = tokens.last(std::min(tokens.size(), row));
  const at::Tensor host = at::zeros({1, static_cast<std::int64_t>(row)}, at::kLong);
  std::copy(seen.begin(), seen.end(), host.mutable_data_ptr<std::int64_t>());
  tokens_.copy_(host);
  const auto of_seen = [&](int unit) {
    return x_[unit % 2].select(0, 0).narrow(0, 0, static_cast<std::int64_t>(seen.size()));
  };
  gpt_.embed(params_[0], tokens_, x_[0]);
  after(0, of_seen(0));
  const int blocks = gpt_.layout().num_blocks(), last = gpt_.layout().last_unit();
  for (int unit = 1; unit <= blocks; ++unit) {
    gpt_.forward_block(unit, params_[static_cast<std::size_t>(unit)], x_[(unit - 1) % 2], saved_, ws_,
                       x_[unit % 2]);
    after(unit, of_seen(unit));
  }
  const UnitTensors& norm = params_[static_cast<std::size_t>(last)];
  const at::Tensor x = x_[blocks % 2].select(0, 0).select(0, static_cast<std::int64_t>(seen.size()) - 1);
  const at::Tensor normed =
      at::layer_norm(x.to(at::kFloat), {x.size(0)}, gpt_.view(last, norm, "ln_f.weight").to(at::kFloat),
                     gpt_.view(last, norm, "ln_f.bias").to(at::kFloat), /*eps=*/1e-5);
  const at::Tensor head = gpt_.head_matrix(params_[static_cast<std::size_t>(gpt_.head_unit())]);
  return at::mv(head, normed.to(x.scalar_type()))
      .narrow(0, 0, gpt_.layout().config().vocab)
      .to(at::kFloat)
      .cpu();
}

at::Tensor TextModel::next_logits(std::span<const std::int64_t> tokens) {
  return forward(tokens, [](int, const at::Tensor&) {});
}

int TextModel::first_nonfinite_unit(std::span<const std::int64_t> tokens) {
  int first = gpt_.layout().last_unit();
  (void)forward(tokens, [&](int unit, const at::Tensor& x) {
    if (!at::isfinite(x).all().item<bool>()) first = std::min(first, unit);
  });
  return first;
}

std::vector<TokenId> beginning_of(const Rows& rows) {
  const auto length = static_cast<std::size_t>(rows.format().sequence);
  std::vector<std::int64_t> tokens(length), targets(length);
  rows.fill(0, tokens, targets);
  tokens.resize(std::clamp<std::size_t>(length / 2, 1, kPromptTokens));
  return {tokens.begin(), tokens.end()};
}

Sample make_sample(Strategy& strategy, const SampleSource& source, Ledger& ledger, Communicator& comm,
                   std::int64_t count) {
  constexpr std::uint64_t kPurpose = 0x73616d706c65;  // key of this use of the seed
  const bool computes = comm.rank() == Rank{0};
  std::unique_ptr<TextModel> model;
  if (computes) model = std::make_unique<TextModel>(source.shape, strategy.layout().whole(), ledger);
  for_each_whole_unit(strategy, strategy.layout(), comm, [&](int unit, const UnitTensors& values) {
    if (computes) model->set_unit(unit, values);
  });
  Sample sample{source.prompt, {}, {}};
  std::vector<std::int64_t> tokens(source.prompt.begin(), source.prompt.end());
  const std::uint64_t key = mix64(source.shape.workload.seed) ^ kPurpose;
  const std::int64_t vocab = std::min(source.vocab, source.shape.workload.model.vocab);
  at::Tensor next = at::zeros({1}, at::kLong);
  for (std::int64_t i = 0; i < count; ++i) {
    if (computes) {
      const at::Tensor logits = model->next_logits(tokens);
      const bool finite = at::isfinite(logits).all().item<bool>();
      next.fill_(finite ? draw(logits, vocab, source.temperature, uniform(key, static_cast<std::uint64_t>(i)))
                        : std::int64_t{-1} - model->first_nonfinite_unit(tokens));
    }
    comm.broadcast(next, Rank{0}, {OpPurpose::tokens}).wait();
    if (const std::int64_t said = next.const_data_ptr<std::int64_t>()[0]; said < 0) {
      // Rank 0 sent a negative number instead of a token: its output is not finite.
      sample.nonfinite_unit = static_cast<int>(-1 - said);
      break;
    }
    tokens.push_back(next.const_data_ptr<std::int64_t>()[0]);
    sample.made.push_back(static_cast<TokenId>(tokens.back()));
  }
  return sample;
}

std::int64_t tokens_to_show(const RunShape& shape, const Dataset& data) {
  constexpr std::int64_t kTokens = 80;
  constexpr double kMostOperations = 2.5e10;  // 2.5 s at 10 GFLOP/s
  const Workload& w = shape.workload;
  const double parameters =
      static_cast<double>(ParamLayout(w.model, shape.mesh.world()).parameters().value());
  const double operations = 2.0 * static_cast<double>(kTokens * w.batch.sequence) * parameters;
  const bool small = operations <= kMostOperations;
  return shape.device == DeviceKind::cpu && small && data.validation().count() > 0 ? kTokens : 0;
}

std::string format_written(const Sample& sample, const Tokenizer& tokenizer, Look look) {
  std::string text = text_of(sample, tokenizer), line;
  text.erase(0, text.find_first_not_of(" \n"));
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool goes_on = (byte & 0xc0U) == 0x80U;  // inside a multi-byte character
    if (byte < 0x80U || look.utf8) {
      line += c == '\n' ? ' ' : c;
    } else if (!goes_on) {
      line += '?';
    }
  }
  return fmt::format("  it writes: \"{}\"\n", line);
}

std::string format_sample(const Sample& sample, const Tokenizer& tokenizer, std::uint64_t seed,
                          double temperature) {
  return fmt::format("sample: {} tokens (temperature {}, seed {}) after a prompt of {}\n{}\n",
                     sample.made.size(), temperature, seed, sample.prompt.size(), text_of(sample, tokenizer));
}

}  // namespace sc::detail

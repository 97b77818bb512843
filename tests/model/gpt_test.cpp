// Tests the layer functions against each other: what is stored, split or cut differently must not change the
// result.
#include "common/model/gpt.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/check.h"
#include "tests/model/model_fixture.h"

namespace sc {
namespace {

RunShape small_run(bool tied = true) {
  RunShape run;
  run.workload.model = {.layers = 3, .heads = 2, .width = 48, .context = 40, .vocab = 100, .tied = tied};
  run.workload.batch = {.sequence = 33, .global = 2, .micro = 2};
  return run;
}

struct Data {
  explicit Data(const RunShape& run, std::uint64_t seed = 1)
      : tokens(some_tokens(run.workload.batch.micro, run.workload.batch.sequence, run.workload.model.vocab,
                           seed)),
        targets(some_tokens(run.workload.batch.micro, run.workload.batch.sequence, run.workload.model.vocab,
                            seed + 50)),
        scale(at::full({}, 1.0 / static_cast<double>(tokens.numel()), at::kFloat)) {
    targets[0][3] = -1;
  }
  at::Tensor tokens, targets, scale;
};

class GptTest : public ::testing::Test {
 protected:
  GptTest() { at::set_num_threads(1); }  // bit-equality is claimed for one thread
};

void run_once(Model& model, const RunShape& run, Write write = Write::overwrite, std::uint64_t seed = 1) {
  const Data data(run, seed);
  model.forward_backward(data.tokens, data.targets, data.scale, write);
}

/// A model after one micro-batch.
struct Trained : Model {
  explicit Trained(const RunShape& run, WorldSize world = WorldSize{1}, std::int64_t persist_below = 0)
      : Model(run, world, persist_below) {
    run_once(*this, run);
  }
};

void expect_equal_grads(const Model& a, const Model& b) {
  a.for_each_tensor([&](int unit, const std::string& name) {
    EXPECT_TRUE(at::equal(a.grad(unit, name), b.grad(unit, name))) << name;
  });
}

/// Compares the gradients of each tensor of `a`.
void expect_close_grads(const Model& a, const Model& b, double limit) {
  a.for_each_tensor([&](int unit, const std::string& name) {
    EXPECT_LE(relative_error(a.grad(unit, name), b.grad(unit, name)), limit) << name;
  });
}

TEST_F(GptTest, SameInputsSameBits) {
  const RunShape run = small_run();
  const Trained a(run), b(run);
  EXPECT_EQ(a.loss(), b.loss());
  expect_equal_grads(a, b);
  EXPECT_GT(a.grad(2, "h.1.attn.c_attn.weight").abs().max().item<double>(), 0.0);
}

TEST_F(GptTest, OverwriteTouchesEveryElementAndNothingBesides) {
  for (const bool tied : {true, false}) {
    const RunShape run = small_run(tied);
    const Trained model(run, WorldSize{3}, /*persist_below=*/200);
    model.for_each_tensor([&](int unit, const std::string& name) {
      EXPECT_FALSE(model.grad(unit, name).isnan().any().item<bool>()) << name;  // the arena was NaN
      model.grad(unit, name).fill_(std::nan(""));
    });
    for (const UnitTensors& g : model.grads) {
      EXPECT_TRUE(g.sharded.isnan().all().item<bool>()) << "a gap was written";
      EXPECT_TRUE(g.whole.numel() == 0 || g.whole.isnan().all().item<bool>()) << "a gap was written";
    }
  }
}

// Accumulating the same micro-batch doubles every gradient exactly; a different one adds.
TEST_F(GptTest, AccumulateAdds) {
  for (const bool tied : {true, false}) {
    const RunShape run = small_run(tied);
    Model first(run), second(run), both(run), twice(run);
    run_once(first, run, Write::overwrite, 1);
    run_once(second, run, Write::overwrite, 2);
    run_once(both, run, Write::overwrite, 1);
    run_once(both, run, Write::accumulate, 2);
    run_once(twice, run, Write::overwrite, 1);
    run_once(twice, run, Write::accumulate, 1);
    EXPECT_NEAR(both.loss(), first.loss() + second.loss(), 1e-12 * both.loss());
    both.for_each_tensor([&](int unit, const std::string& name) {
      const at::Tensor sum = first.grad(unit, name) + second.grad(unit, name);
      // The sum inside a matrix product rounds differently: a few units in the last place of the largest
      // term.
      EXPECT_LE(relative_error(both.grad(unit, name), sum), 2e-6) << name;
      EXPECT_LE(relative_error(twice.grad(unit, name), first.grad(unit, name) * 2), 2e-6) << name;
    });
  }
}

TEST_F(GptTest, HeadInChunks) {
  RunShape run = small_run();  // 66 tokens
  const Trained whole(run);
  for (const std::int64_t chunk : {1, 7, 33, 66, 67}) {
    run.workload.head_chunk = chunk;
    SCOPED_TRACE(chunk);
    const Trained cut(run);
    EXPECT_EQ(cut.buffers.ws.logits.size(0), std::min<std::int64_t>(chunk, 66));
    EXPECT_EQ(cut.buffers.result.tokens.item<double>(), 65.0);
    if (chunk >= 66) {
      EXPECT_EQ(cut.loss(), whole.loss());
      expect_equal_grads(cut, whole);
      continue;
    }
    EXPECT_NEAR(cut.loss(), whole.loss(), 1e-6 * whole.loss());
    expect_close_grads(cut, whole, 1e-5);
  }
}

TEST_F(GptTest, RecomputationChangesNoBit) {
  RunShape run = small_run();
  const Trained keep(run);
  for (const Activations mode : {Activations::recompute_gelu, Activations::recompute}) {
    run.workload.activations = mode;
    const Trained again(run);
    EXPECT_EQ(again.loss(), keep.loss());
    expect_equal_grads(again, keep);
    EXPECT_LT(again.ledger.live(Purpose::activations), keep.ledger.live(Purpose::activations));
  }
}

// A schedule may run every block's input gradients first and the weights' later, in any order, if what
// backward_input leaves is kept for each.
TEST_F(GptTest, WeightsMayComeMuchLater) {
  for (const Activations mode : {Activations::keep, Activations::recompute_gelu, Activations::recompute}) {
    RunShape run = small_run();
    run.workload.activations = mode;
    const Trained joint(run);
    Model split(run);
    const Data data(run);
    split.forward(data.tokens);
    const int last = split.layout.last_unit(), blocks = split.layout.num_blocks();
    std::vector<at::Tensor> grad_x;
    std::vector<Workspace> spaces;
    for (int i = 0; i <= blocks; ++i) {
      grad_x.push_back(at::empty_like(split.buffers.x(0)));
      spaces.push_back(make_workspace(split.gpt, split.ledger));
    }
    at::Tensor grad_head = split.gpt.head_matrix(split.grads[0]);
    split.gpt.head(split.gpt.head_matrix(split.params[0]), split.params[last], split.buffers.x(blocks),
                   data.targets, data.scale, grad_x[blocks], grad_head, split.grads[last], Write::overwrite,
                   spaces[0], split.buffers.result);
    for (int unit = blocks; unit >= 1; --unit) {
      split.gpt.backward_input(unit, split.params[unit], split.buffers.saved(unit), grad_x[unit],
                               spaces[unit], spaces[unit].grads, grad_x[unit - 1]);
    }
    split.gpt.embed_backward(data.tokens, grad_x[0], split.grads[0], Write::accumulate, Write::overwrite);
    for (int unit = 1; unit <= blocks; ++unit) {
      split.gpt.backward_weights(unit, split.buffers.saved(unit), spaces[unit], spaces[unit].grads,
                                 split.grads[unit], Write::overwrite);
    }
    EXPECT_EQ(split.loss(), joint.loss());
    expect_equal_grads(split, joint);
  }
}

// With tied_sum=split the head's and the embedding's parts of wte's gradient stay apart; their sum is the
// joint one.
TEST_F(GptTest, SplitTiedGradientsAddUp) {
  const RunShape run = small_run();
  const Trained joint(run);
  Model split(run);
  const Data data(run);
  split.forward_backward(data.tokens, data.targets, data.scale, Write::overwrite);
  split.gpt.embed_backward(data.tokens, split.buffers.grad_x[0], split.grads[0], Write::overwrite,
                           Write::overwrite);
  const at::Tensor embedding = split.grad(0, "wte.weight").clone();
  const int last = split.layout.last_unit();
  at::Tensor head = split.gpt.head_matrix(split.grads[0]);
  split.gpt.head(split.gpt.head_matrix(split.params[0]), split.params[last], split.buffers.x(last - 1),
                 data.targets, data.scale, split.buffers.grad_x[0], head, split.grads[last], Write::overwrite,
                 split.buffers.ws, split.buffers.result);
  EXPECT_GT(embedding.abs().max().item<double>(), 0.0);
  EXPECT_GT(head.abs().max().item<double>(), 0.0);
  EXPECT_LE(relative_error(head + embedding, joint.grad(0, "wte.weight")), 1e-6);
  // A token that never occurs has no embedding gradient.
  for (std::int64_t token = 0; token < 128; ++token) {
    const bool occurs = data.tokens.eq(token).any().item<bool>();
    EXPECT_EQ(embedding[token].abs().max().item<double>() > 0.0, occurs) << token;
  }
}

TEST_F(GptTest, PaddingRowsNeverMatter) {
  for (const bool tied : {true, false}) {
    const RunShape run = small_run(tied);
    Model clean(run), dirty(run);
    at::Tensor head = dirty.gpt.head_matrix(dirty.params[dirty.gpt.head_unit()]);
    head.narrow(0, 100, 28).fill_(1e4);
    run_once(clean, run);
    run_once(dirty, run);
    EXPECT_EQ(dirty.loss(), clean.loss());
    expect_equal_grads(dirty, clean);
    const at::Tensor grad = dirty.gpt.head_matrix(dirty.grads[dirty.gpt.head_unit()]);
    EXPECT_EQ(grad.narrow(0, 100, 28).abs().max().item<double>(), 0.0);
  }
}

// Rows without targets have no loss and no gradient and are not counted; the other rows are as if alone.
TEST_F(GptTest, TargetsBelowZeroHaveNoLoss) {
  const RunShape run = small_run();
  Data data(run);
  data.targets[1].fill_(-1);
  Model two(run);
  two.forward_backward(data.tokens, data.targets, data.scale, Write::overwrite);
  EXPECT_EQ(two.buffers.result.tokens.item<double>(), 32.0);
  EXPECT_EQ(two.buffers.grad_x[0][1].abs().max().item<double>(), 0.0);
  RunShape one_run = run;
  one_run.workload.batch.micro = 1;
  Model one(one_run);
  one.forward_backward(data.tokens.narrow(0, 0, 1), data.targets.narrow(0, 0, 1), data.scale,
                       Write::overwrite);
  EXPECT_NEAR(one.loss(), two.loss(), 1e-6 * two.loss());
  expect_close_grads(one, two, 1e-5);
  data.targets.fill_(-100);
  Model none(run);
  none.forward_backward(data.tokens, data.targets, data.scale, Write::overwrite);
  EXPECT_EQ(none.loss(), 0.0);
  none.for_each_tensor([&](int unit, const std::string& name) {
    EXPECT_EQ(none.grad(unit, name).abs().max().item<double>(), 0.0) << name;
  });
}

// Neither values nor gradients depend on the place of the vectors (worlds, segments).
TEST_F(GptTest, LayoutChangesNoBit) {
  const RunShape run = small_run(false);
  Model reference(run);
  run_once(reference, run);
  for (const int world : {2, 3, 4}) {
    Model other(run, WorldSize{world}, /*persist_below=*/world == 3 ? 200 : 0);
    reference.for_each_tensor([&](int unit, const std::string& name) {
      EXPECT_TRUE(at::equal(other.param(unit, name), reference.param(unit, name))) << name;
    });
    run_once(other, run);
    EXPECT_EQ(other.loss(), reference.loss());
    expect_equal_grads(other, reference);
  }
}

TEST_F(GptTest, SixteenBitsFollowFp32) {
  const RunShape run = small_run();
  const Trained reference(run);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const DType grad_dtype : {dtype, DType::f32}) {
      RunShape half = run;
      half.workload.precision = {.dtype = dtype, .grad_dtype = grad_dtype, .reduce_dtype = grad_dtype};
      const Trained model(half);
      EXPECT_NEAR(model.loss(), reference.loss(), 2e-2 * reference.loss());
      model.for_each_tensor([&](int unit, const std::string& name) {
        ASSERT_EQ(from_aten(model.grad(unit, name).scalar_type()), grad_dtype);
      });
      expect_close_grads(model, reference, 6e-2);
    }
  }
}

TEST_F(GptTest, TwoThreadsAgree) {
  const RunShape run = small_run();
  const Trained one(run);
  at::set_num_threads(2);
  const Trained two(run);
  at::set_num_threads(1);
  expect_close_grads(two, one, 1e-5);
}

TEST_F(GptTest, RefusesWhatItCannotRun) {
  RunShape run = small_run();
  run.workload.batch.sequence = 41;
  EXPECT_THROW(Model{run}, InputError);
  run = small_run();
  run.ops = OpsBackend::fused;
  EXPECT_THROW(Model{run}, InputError);
  const Model model(small_run());
  EXPECT_THROW((void)model.gpt.view(1, model.params[1], "h.1.ln_1.weight"), std::out_of_range);
}

TEST(Init, FollowsSeedAndNameAlone) {
  const RunShape run = small_run(false);
  const Model a(run, WorldSize{1}, 0, 7), b(run, WorldSize{3}, 5000, 7), other(run, WorldSize{1}, 0, 8);
  a.for_each_tensor([&](int unit, const std::string& name) {
    EXPECT_TRUE(at::equal(a.param(unit, name), b.param(unit, name))) << name;
    const bool matrix = a.param(unit, name).dim() == 2;
    EXPECT_EQ(at::equal(a.param(unit, name), other.param(unit, name)), !matrix) << name;
  });
  EXPECT_FALSE(at::equal(a.param(1, "h.0.mlp.c_fc.weight"), a.param(2, "h.1.mlp.c_fc.weight")));
}

// The initial weights follow GPT-2's scheme. Bounds: five standard errors of mean and deviation over n
// elements.
TEST(Init, HasTheRightMoments) {
  RunShape run;
  run.workload.model = {.layers = 4, .heads = 4, .width = 128, .context = 256, .vocab = 257, .tied = true};
  const Model model(run);
  const auto check = [&](int unit, const std::string& name, std::int64_t rows, double stddev) {
    const at::Tensor t = model.param(unit, name).narrow(0, 0, rows).to(at::kDouble);
    const double n = static_cast<double>(t.numel());
    EXPECT_NEAR(t.mean().item<double>(), 0.0, 5 * stddev / std::sqrt(n)) << name;
    EXPECT_NEAR(t.std().item<double>(), stddev, 5 * stddev / std::sqrt(2 * n)) << name;
    EXPECT_NEAR(t.abs().le(stddev).sum().item<double>() / n, 0.6827, 5 * 0.4654 / std::sqrt(n)) << name;
  };
  check(0, "wte.weight", 257, 0.02);
  check(0, "wpe.weight", 256, 0.02);
  check(1, "h.0.attn.c_attn.weight", 384, 0.02);
  check(2, "h.1.attn.c_proj.weight", 128, 0.02 / std::sqrt(8.0));
  check(3, "h.2.mlp.c_fc.weight", 512, 0.02);
  check(4, "h.3.mlp.c_proj.weight", 128, 0.02 / std::sqrt(8.0));
  EXPECT_EQ(model.param(0, "wte.weight").narrow(0, 257, 127).abs().max().item<double>(), 0.0);
  for (const char* name : {"h.0.ln_1.weight", "h.0.ln_2.weight"})
    EXPECT_TRUE(model.param(1, name).eq(1).all().item<bool>());
  for (const char* name : {"h.0.ln_1.bias", "h.0.attn.c_attn.bias", "h.0.attn.c_proj.bias",
                           "h.0.mlp.c_fc.bias", "h.0.mlp.c_proj.bias", "h.0.ln_2.bias"}) {
    EXPECT_TRUE(model.param(1, name).eq(0).all().item<bool>()) << name;
  }
}

}  // namespace
}  // namespace sc

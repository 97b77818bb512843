// Interface probe, deleted when lesson 04 exists: a ZeRO-3 step (gather, use, release) on the real
// interfaces. If it needs a special case in common/, the design is wrong.
#include "common/model/unit_views.h"
#include "common/optim/grad_norm.h"
#include "lessons/00_one_device/one_device.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

constexpr Segment kSegments[] = {Segment::sharded, Segment::whole};

struct Zero3Probe {
  struct Options {
    std::int64_t persist_below = 0;
  };
  static MemoryPlan memory_plan(const RunShape&, const Options&) { return {}; }
  static CommPlan comm_plan(const RunShape& shape, const Options& options) {
    CommPlan plan;
    const ParamLayout layout(shape.workload.model, shape.world, options.persist_below);
    const std::int64_t micro = shape.workload.batch.global / shape.workload.batch.micro / to_int(shape.world);
    for (int unit = 0; unit < layout.num_units(); ++unit) {
      const bool twice = unit >= 1 && unit < layout.num_blocks();
      for (const Segment s : kSegments) {
        const Elements size(layout.unit(unit).size(s));
        if (s == Segment::sharded) plan.add(CommKind::all_gather, DType::f32, size, micro * (twice ? 2 : 1));
        if (s == Segment::whole) plan.add(CommKind::all_gather, DType::f32, size);
        plan.add(CommKind::reduce_scatter, DType::f32, size, micro);
      }
    }
    plan.add(CommKind::all_reduce, DType::f64, Elements(4));
    return plan;
  }

  Zero3Probe(RunContext& context, const Options& options)
      : context_(context),
        layout_(context.shape.workload.model, context.shape.world, options.persist_below),
        gpt_(shape_of(context.shape), layout_),
        buffers_(gpt_, context.ledger) {
    const auto tensor = [&](Purpose p, std::int64_t n) {
      return context.ledger.zeros(p, "probe", {n}, DType::f32);
    };
    const std::int64_t world = to_int(context.shape.world);
    std::int64_t largest = 0;
    for (int unit = 1; unit <= layout_.num_blocks(); ++unit)
      largest = std::max(largest, layout_.unit(unit).sharded_size);
    at::Tensor pool[] = {tensor(Purpose::parameters, largest), tensor(Purpose::parameters, largest)};
    at::Tensor grad_pool[] = {tensor(Purpose::gradients, largest), tensor(Purpose::gradients, largest)};
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      const UnitLayout& u = layout_.unit(unit);
      const bool block = unit >= 1 && unit <= layout_.num_blocks();
      full_.push_back({block ? pool[unit % 2] : tensor(Purpose::parameters, u.sharded_size),
                       tensor(Purpose::parameters, u.whole_size)});
      grad_full_.push_back({block ? grad_pool[unit % 2] : tensor(Purpose::gradients, u.sharded_size),
                            tensor(Purpose::gradients, u.whole_size)});
      init_unit(layout_, unit, context.shape.workload.seed, full_[unit]);
      for (const Segment s : kSegments) {
        const Range mine = layout_.slice(unit, s, context.comm.rank());
        Slice slice{unit, s, mine, {}, {}, {}, {}, {}};
        for (at::Tensor* t : {&slice.grad, &slice.scratch, &slice.m, &slice.v})
          *t = tensor(Purpose::momentum, u.size(s) / world);
        if (s == Segment::whole) {
          slice.param = full_[unit].whole.narrow(0, mine.begin, mine.size());
        } else {
          slice.param = tensor(Purpose::parameters, mine.size());
          slice.param.copy_(full_[unit].sharded.narrow(0, mine.begin, mine.size()));
        }
        slices_.push_back(slice);
      }
    }
  }

  void gather_params(int unit) {
    context_.comm.all_gather(slices_[2 * unit].param, full_[unit].sharded).wait();
  }
  void reduce_grads(int unit, bool first) {
    for (int s = 0; s < 2; ++s) {
      Slice& slice = slices_[2 * unit + s];
      if (slice.range.size() == 0) continue;
      at::Tensor& into = first ? slice.grad : slice.scratch;
      context_.comm.reduce_scatter(grad_full_[unit].segment(kSegments[s]), into).wait();
      if (!first) slice.grad.add_(slice.scratch);
    }
  }

  StepResult train_step(std::span<const Batch> micro_batches) {
    const int L = layout_.num_blocks(), last = layout_.last_unit(), head = gpt_.head_unit();
    buffers_.sums.zero_();
    for (std::size_t j = 0; j < micro_batches.size(); ++j) {
      const Batch& batch = micro_batches[j];
      gather_params(0);
      gpt_.embed(full_[0], batch.tokens, buffers_.x[0]);
      for (int unit = 1; unit <= L; ++unit) {
        gather_params(unit);
        gpt_.forward_block(unit, full_[unit], buffers_.x[unit - 1], buffers_.saved[unit - 1], buffers_.ws,
                           buffers_.x[unit]);
      }
      gather_params(last);
      at::Tensor grad_head = gpt_.head_matrix(grad_full_[head]);
      gpt_.head(gpt_.head_matrix(full_[head]), full_[last], buffers_.x[L], batch.targets, batch.scale,
                buffers_.grad_x[L % 2], grad_head, grad_full_[last], Write::overwrite, buffers_.ws,
                buffers_.result);
      reduce_grads(last, j == 0);
      for (int unit = L; unit >= 1; --unit) {
        if (unit < L) gather_params(unit);
        gpt_.backward_input(unit, full_[unit], buffers_.saved[unit - 1], buffers_.grad_x[unit % 2],
                            buffers_.ws, buffers_.grad_x[(unit - 1) % 2]);
        gpt_.backward_weights(unit, buffers_.saved[unit - 1], buffers_.ws, grad_full_[unit],
                              Write::overwrite);
        reduce_grads(unit, j == 0);
      }
      gpt_.embed_backward(batch.tokens, buffers_.grad_x[0], grad_full_[0],
                          layout_.config().tied ? Write::accumulate : Write::overwrite, Write::overwrite);
      reduce_grads(0, j == 0);
    }
    for (const Slice& slice : slices_) add_sums_of_squares({&slice.grad, 1}, buffers_.sums);
    finish_sums(buffers_.sums);
    context_.comm.all_reduce(buffers_.sums).wait();
    global_norm_and_clip(buffers_.sums, context_.shape.workload.optim.clip, context_.scalars);
    for (Slice& slice : slices_) {
      adamw_step(hyper_of(context_.shape.workload.optim), context_.scalars,
                 layout_.decay_ranges(slice.unit, slice.segment, slice.range), slice.grad, slice.param,
                 slice.m, slice.v, nullptr);
      if (slice.segment == Segment::whole && slice.range.size() > 0)
        context_.comm.all_gather(slice.param, full_[slice.unit].whole).wait();
    }
    return {buffers_.sums, context_.scalars.grad_norm};
  }
  void settle() {}
  double evaluate(std::span<const Batch>) { return 0; }
  void after_step(std::int64_t) {}
  // Named tensors, whole, because persist_below moves them between segments and 00's layout has one.
  void visit_state(StateVisitor& visitor) {
    for (int unit = 0; unit < layout_.num_units(); ++unit) {
      gather_params(unit);
      for (const ParamTensor& t : layout_.unit(unit).tensors) {
        visitor.visit({Purpose::parameters,
                       unit,
                       Segment::sharded,
                       {t.offset, t.offset + t.numel()},
                       gpt_.view(unit, full_[unit], t.name)});
      }
    }
  }

  struct Slice {
    int unit;
    Segment segment;
    Range range;
    at::Tensor param, grad, scratch, m, v;
  };
  RunContext& context_;
  ParamLayout layout_;
  Gpt gpt_;
  std::vector<UnitTensors> full_, grad_full_;
  std::vector<Slice> slices_;  // [2 * unit + segment]
  ActivationBuffers buffers_;
};

TEST(Zero3Probe, TwoRanksEqualOneDevice) {
  for (const bool tied : {true, false}) {
    for (const std::int64_t persist_below : {0, 100}) {
      SCOPED_TRACE(persist_below);
      Workload w = test::odd_workload();
      w.model.tied = tied;
      const auto expected =
          test::run_local<OneDevice>(1, w, {.virtual_ranks = 2, .reduce_every = ReduceEvery::micro_batch}, 4)
              .at(0);
      const ParamLayout plain(w.model, WorldSize{2});
      const ParamLayout split(w.model, WorldSize{2}, persist_below);
      for (const auto& rank : test::run_local<Zero3Probe>(2, w, {persist_below}, 4)) {
        EXPECT_EQ(rank.losses, expected.losses);
        EXPECT_EQ(rank.norms, expected.norms);
        std::size_t at = 0;
        for (int unit = 0; unit < plain.num_units(); ++unit) {
          const at::Tensor& whole = expected.state[3 * static_cast<std::size_t>(unit)]
                                        .values;  // parameters, momentum, variance a unit
          for (const ParamTensor& t : split.unit(unit).tensors) {
            const at::Tensor want = whole.narrow(0, plain.find(unit, t.name)->offset, t.numel());
            EXPECT_EQ(
                std::memcmp(want.const_data_ptr(), rank.state[at++].values.const_data_ptr(), want.nbytes()),
                0)
                << t.name;
          }
        }
        for (const CommPlan& recorded : rank.recorded) EXPECT_TRUE(recorded == rank.comm_plan);
      }
    }
  }
}

}  // namespace
}  // namespace sc

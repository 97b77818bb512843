#include "common/model/param_layout.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "common/base/check.h"

namespace sc {
namespace {

ParamTensor tensor(std::string name, std::vector<std::int64_t> shape) {
  ParamTensor t;
  t.name = std::move(name);
  t.decay = shape.size() == 2;  // matrices, embeddings included; never biases and norms
  const std::int64_t numel = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies());
  t.whole = {.shape = shape, .split = numel, .part = {0, numel}};
  t.shape = std::move(shape);
  return t;
}

// [anchor: one-rule-cuts-every-matrix]
// Each tensor of a rank is a range of the middle dimension of [outer, split, inner], a view of the whole
// tensor. Rows of a matrix are cut with outer = 1 (fused qkv: 3, so that a rank has its heads of each),
// columns with inner = 1.
class Tensors {
 public:
  Tensors(const GptConfig& config, const TensorCut& cut) : c_(config), cut_(cut) {}

  [[nodiscard]] Range heads() const { return cut_.part(c_.heads, 1); }
  [[nodiscard]] Range hidden() const { return cut_.part(4 * c_.width, granule(4 * c_.width)); }
  [[nodiscard]] Range vocab() const { return cut_.part(c_.vocab_padded(), granule(c_.vocab_padded())); }

  [[nodiscard]] std::vector<ParamTensor> embeddings() const {
    return {cut("wte.weight", {c_.vocab_padded(), c_.width}, 0, 1, vocab()),
            replicated("wpe.weight", {c_.context, c_.width})};
  }
  [[nodiscard]] std::vector<ParamTensor> block(std::int64_t index) const {
    const std::int64_t d = c_.width;
    const std::string h = "h." + std::to_string(index) + ".";
    const Range attention{heads().begin * c_.head_dim(), heads().end * c_.head_dim()};
    return {replicated(h + "ln_1.weight", {d}),
            replicated(h + "ln_1.bias", {d}),
            cut(h + "attn.c_attn.weight", {3 * d, d}, 0, 3, attention),
            cut(h + "attn.c_attn.bias", {3 * d}, 0, 3, attention),
            cut(h + "attn.c_proj.weight", {d, d}, 1, d, attention),
            replicated(h + "attn.c_proj.bias", {d}),
            replicated(h + "ln_2.weight", {d}),
            replicated(h + "ln_2.bias", {d}),
            cut(h + "mlp.c_fc.weight", {4 * d, d}, 0, 1, hidden()),
            cut(h + "mlp.c_fc.bias", {4 * d}, 0, 1, hidden()),
            cut(h + "mlp.c_proj.weight", {d, 4 * d}, 1, d, hidden()),
            replicated(h + "mlp.c_proj.bias", {d})};
  }
  [[nodiscard]] std::vector<ParamTensor> last() const {
    std::vector<ParamTensor> tensors = {replicated("ln_f.weight", {c_.width}),
                                        replicated("ln_f.bias", {c_.width})};
    if (!c_.tied) tensors.push_back(cut("lm_head.weight", {c_.vocab_padded(), c_.width}, 0, 1, vocab()));
    return tensors;
  }

 private:
  // The multiple at which a size is cut: 64, which is fast in products, or less if there are fewer of these
  // than ranks.
  [[nodiscard]] std::int64_t granule(std::int64_t size) const {
    constexpr std::int64_t kFew = 4;
    return size % kAlign == 0 && size / kAlign >= cut_.ranks ? kAlign : kFew;
  }
  [[nodiscard]] ParamTensor replicated(std::string name, std::vector<std::int64_t> shape) const {
    ParamTensor t = tensor(std::move(name), std::move(shape));
    if (cut_.ranks > 1) t.segment = Segment::whole;
    return t;
  }
  // This rank's part of a tensor that is cut along `dim`: rows, in `outer` groups, or a matrix's columns.
  [[nodiscard]] static ParamTensor cut(std::string name, std::vector<std::int64_t> shape, std::size_t dim,
                                       std::int64_t outer, Range part) {
    ParamTensor t = tensor(std::move(name), std::move(shape));
    const std::int64_t inner = dim + 1 < t.shape.size() ? t.shape[dim + 1] : 1,
                       split = t.numel() / outer / inner;
    if (part.size() == split) return t;
    t.whole = {t.shape, outer, split, inner, part};
    t.shape[dim] = t.shape[dim] / split * part.size();
    return t;
  }

  const GptConfig& c_;
  TensorCut cut_;
};

// The number of parameters in a tensor, without the padding rows of wte and lm_head.
std::int64_t real_numel(const ParamTensor& t, const GptConfig& c) {
  const bool padded = t.name == "wte.weight" || t.name == "lm_head.weight";
  if (!padded) return t.numel();
  const std::int64_t first = t.is_cut() ? t.whole.part.begin : 0;
  return std::clamp<std::int64_t>(c.vocab - first, 0, t.shape[0]) * c.width;
}

// Places the tensors one after another into their segments, and pads each segment for `world` slices.
UnitLayout place(std::vector<ParamTensor> tensors, std::int64_t world) {
  UnitLayout unit;
  for (ParamTensor& t : tensors) {
    std::int64_t& size = t.segment == Segment::whole ? unit.whole_size : unit.sharded_size;
    t.offset = size;
    size = round_up(size + t.numel(), kAlign);
  }
  unit.sharded_size = round_up(unit.sharded_size, world * kAlign);
  unit.whole_size = round_up(unit.whole_size, world * kAlign);
  unit.tensors = std::move(tensors);
  return unit;
}

std::vector<UnitLayout> units_of(const GptConfig& config, WorldSize world, std::int64_t persist_below,
                                 const TensorCut& cut) {
  std::vector<UnitLayout> units;
  const Tensors tensors(config, cut);
  const auto add = [&](std::vector<ParamTensor> of_unit) {
    for (ParamTensor& t : of_unit)
      if (real_numel(t, config) < persist_below) t.segment = Segment::whole;
    units.push_back(place(std::move(of_unit), to_int(world)));
  };
  add(tensors.embeddings());
  for (std::int64_t i = 0; i < config.layers; ++i) add(tensors.block(i));
  add(tensors.last());
  for (std::size_t u = 1; u < units.size(); ++u) {
    units[u].sharded_begin = units[u - 1].sharded_begin + units[u - 1].sharded_size;
    units[u].whole_begin = units[u - 1].whole_begin + units[u - 1].whole_size;
  }
  return units;
}

void check(const GptConfig& c, WorldSize world, const TensorCut& cut) {
  const auto refuse = [](const char* what, const char* fix) {
    throw InputError(ExitCode::usage, "model", what, fix);
  };
  if (c.layers < 1 || c.heads < 1 || c.width < 1 || c.context < 1 || c.vocab < 1) {
    refuse("layers, heads, width, context and vocab must be at least 1",
           "set all five in the workload's model section");
  }
  if (c.width % c.heads != 0)
    refuse("width is not a multiple of heads", "choose a width that the heads divide evenly");
  if (to_int(world) < 1) refuse("a layout needs a world of at least 1 rank", "pass --world 1 or more");
  if (cut.ranks > c.heads) {
    throw InputError(ExitCode::usage, "model.heads",
                     std::to_string(c.heads) + " heads cannot be shared by " + std::to_string(cut.ranks) +
                         " tensor ranks: each has at least one",
                     "at most " + std::to_string(c.heads) + " of them, or --set model.heads=" +
                         std::to_string(cut.ranks) + " or more that divide model.width");
  }
}

}  // namespace

Range TensorCut::part(std::int64_t size, std::int64_t granule) const {
  const std::int64_t granules = size / granule;
  return {granules * rank / ranks * granule, granules * (rank + 1) / ranks * granule};
}

ParamLayout::ParamLayout(const GptConfig& config, WorldSize world, std::int64_t persist_below,
                         const TensorCut& cut)
    : config_(config), world_(world), persist_below_(persist_below), cut_(cut) {
  check(config, world, cut);
  // Layouts are cached, because the functions of a plan, and equal ranks, ask for the same few over and over.
  using Asked = std::tuple<GptConfig, WorldSize, std::int64_t, TensorCut>;
  thread_local std::array<std::pair<Asked, std::shared_ptr<const std::vector<UnitLayout>>>, 16> known;
  thread_local std::size_t next = 0;
  const Asked asked(config, world, persist_below, cut);
  for (const auto& [key, units] : known)
    if (units != nullptr && key == asked) units_ = units;
  if (units_ != nullptr) return;
  units_ = std::make_shared<const std::vector<UnitLayout>>(units_of(config, world, persist_below, cut));
  known.at(next++ % known.size()) = {asked, units_};
}

const ParamTensor* ParamLayout::find(int unit, std::string_view name) const {
  for (const ParamTensor& t : this->unit(unit).tensors) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

Elements ParamLayout::arena_size(Segment segment) const {
  return Elements(units_->back().begin(segment) + units_->back().size(segment));
}

Elements ParamLayout::parameters() const {
  std::int64_t n = 0;
  for (const UnitLayout& u : *units_) {
    for (const ParamTensor& t : u.tensors) n += real_numel(t, config_);
  }
  return Elements(n);
}

Range ParamLayout::heads() const { return Tensors(config_, cut_).heads(); }
Range ParamLayout::hidden() const { return Tensors(config_, cut_).hidden(); }
Range ParamLayout::vocab_rows() const { return Tensors(config_, cut_).vocab(); }

Range ParamLayout::slice(int unit, Segment segment, Rank rank) const {
  const std::int64_t size = this->unit(unit).size(segment) / to_int(world_);
  return {to_int(rank) * size, (to_int(rank) + 1) * size};
}

std::vector<Range> ParamLayout::decay_ranges(int unit, Segment segment, Range range) const {
  std::vector<Range> ranges;
  for (const ParamTensor& t : this->unit(unit).tensors) {
    if (!t.decay || t.segment != segment) continue;
    const Range part{std::max(t.offset, range.begin) - range.begin,
                     std::min(t.offset + t.numel(), range.end) - range.begin};
    if (part.size() <= 0) continue;
    if (!ranges.empty() && ranges.back().end == part.begin) {
      ranges.back().end = part.end;  // neighbours without a gap become one range
    } else {
      ranges.push_back(part);
    }
  }
  return ranges;
}

}  // namespace sc

#include "common/model/param_layout.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace sc {
namespace {

ParamTensor tensor(std::string name, std::vector<std::int64_t> shape) {
  ParamTensor t;
  t.name = std::move(name);
  t.decay = shape.size() == 2;  // matrices, embeddings included; never biases and norms
  t.shape = std::move(shape);
  return t;
}

std::vector<ParamTensor> embeddings(const GptConfig& c) {
  return {tensor("wte.weight", {c.vocab_padded(), c.width}), tensor("wpe.weight", {c.context, c.width})};
}

std::vector<ParamTensor> block(const GptConfig& c, std::int64_t index) {
  const std::int64_t d = c.width;
  const std::string h = "h." + std::to_string(index) + ".";
  return {tensor(h + "ln_1.weight", {d}),
          tensor(h + "ln_1.bias", {d}),
          tensor(h + "attn.c_attn.weight", {3 * d, d}),
          tensor(h + "attn.c_attn.bias", {3 * d}),
          tensor(h + "attn.c_proj.weight", {d, d}),
          tensor(h + "attn.c_proj.bias", {d}),
          tensor(h + "ln_2.weight", {d}),
          tensor(h + "ln_2.bias", {d}),
          tensor(h + "mlp.c_fc.weight", {4 * d, d}),
          tensor(h + "mlp.c_fc.bias", {4 * d}),
          tensor(h + "mlp.c_proj.weight", {d, 4 * d}),
          tensor(h + "mlp.c_proj.bias", {d})};
}

std::vector<ParamTensor> last(const GptConfig& c) {
  std::vector<ParamTensor> tensors = {tensor("ln_f.weight", {c.width}), tensor("ln_f.bias", {c.width})};
  if (!c.tied) tensors.push_back(tensor("lm_head.weight", {c.vocab_padded(), c.width}));
  return tensors;
}

// Elements of a tensor that are parameters: wte and lm_head carry padding rows.
std::int64_t real_numel(const ParamTensor& t, const GptConfig& c) {
  const bool padded = t.name == "wte.weight" || t.name == "lm_head.weight";
  return padded ? c.vocab * c.width : t.numel();
}

// Puts the tensors one behind the other into their segments and pads each segment for `world` slices.
UnitLayout place(std::vector<ParamTensor> tensors, const GptConfig& c, std::int64_t world,
                 std::int64_t persist_below) {
  UnitLayout unit;
  for (ParamTensor& t : tensors) {
    t.segment = real_numel(t, c) < persist_below ? Segment::whole : Segment::sharded;
    std::int64_t& size = t.segment == Segment::whole ? unit.whole_size : unit.sharded_size;
    t.offset = size;
    size = round_up(size + t.numel(), kAlign);
  }
  unit.sharded_size = round_up(unit.sharded_size, world * kAlign);
  unit.whole_size = round_up(unit.whole_size, world * kAlign);
  unit.tensors = std::move(tensors);
  return unit;
}

void check(const GptConfig& c, WorldSize world) {
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
}

}  // namespace

std::int64_t ParamTensor::numel() const {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  return n;
}

ParamLayout::ParamLayout(const GptConfig& config, WorldSize world, std::int64_t persist_below)
    : config_(config), world_(world) {
  check(config, world);
  const auto add = [&](std::vector<ParamTensor> tensors) {
    units_.push_back(place(std::move(tensors), config, to_int(world), persist_below));
  };
  add(embeddings(config));
  for (std::int64_t i = 0; i < config.layers; ++i) add(block(config, i));
  add(last(config));
  for (std::size_t u = 1; u < units_.size(); ++u) {
    units_[u].sharded_begin = units_[u - 1].sharded_begin + units_[u - 1].sharded_size;
    units_[u].whole_begin = units_[u - 1].whole_begin + units_[u - 1].whole_size;
  }
}

const ParamTensor* ParamLayout::find(int unit, std::string_view name) const {
  for (const ParamTensor& t : this->unit(unit).tensors) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

Elements ParamLayout::arena_size(Segment segment) const {
  return Elements(units_.back().begin(segment) + units_.back().size(segment));
}

Elements ParamLayout::parameters() const {
  std::int64_t n = 0;
  for (const UnitLayout& u : units_) {
    for (const ParamTensor& t : u.tensors) n += real_numel(t, config_);
  }
  return Elements(n);
}

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
      ranges.back().end = part.end;  // neighbours without a gap are one range
    } else {
      ranges.push_back(part);
    }
  }
  return ranges;
}

}  // namespace sc

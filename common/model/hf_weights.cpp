#include "common/model/hf_weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "common/base/check.h"
#include "common/base/finite.h"
#include "common/base/text.h"
#include "common/input/printable.h"
#include "common/model/hf_names.h"

namespace sc {
namespace {

const std::string kHead = kHfHead;
constexpr const char* kEmbedding = "wte.weight";

using Shape = std::vector<std::int64_t>;

std::string text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Whether a tensor is a buffer of old files: the causal mask, or the score of masked positions.
bool is_mask(std::string_view name) {
  return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

bool is_bias(std::string_view name) { return name.ends_with(".bias") && !is_mask(name); }

// A view of the part of a tensor that a file contains, in the file's orientation.
at::Tensor file_view(const ParamTensor& t, const GptConfig& config, const UnitTensors& tensors, bool linear) {
  const at::Tensor whole = tensors.segment(t.segment).narrow(0, t.offset, t.numel()).view(t.shape);
  if (hf_transposed(t.name, t.shape)) return linear ? whole : whole.t();
  return whole.narrow(0, 0, hf_shape(t.name, t.shape, config.vocab)[0]);
}

constexpr const char* kOwn = "is of a checkpoint of this program, which ranks have written in parts";

std::string own_fix(const Path& checkpoint) {
  const std::string dir = checkpoint.string();
  return "checkpoint export " + dir + " FILE.safetensors, then --init FILE.safetensors; or --resume " + dir +
         ", to go on with its run";
}

// Refuses other files that users have next to a safetensors file, each with its own fix.
const Path& one_safetensors_file(const Path& path) {
  const auto refuse = [&](const std::string& what, const std::string& fix) {
    throw InputError(ExitCode::data, path.string(), what, fix);
  };
  const auto ops = posix_file_ops();
  if (ops->kind(path) == PathKind::directory) {
    if (ops->kind(path / "model.safetensors") == PathKind::file)
      refuse("is a folder, and a file is to be read", (path / "model.safetensors").string());
    for (const std::string& name : ops->list(path)) {
      if (name == "manifest.json" || name.starts_with("step-")) refuse(kOwn, own_fix(path));
      if (name == "checkpoints" && ops->kind(path / name) == PathKind::directory)
        refuse(kOwn, own_fix(path / name));
    }
  }
  if (path.filename() == "manifest.json") refuse(kOwn, own_fix(parent_of(path)));
  if (path.filename().string().ends_with(".index.json"))
    refuse("it lists the files of a model that is stored in several",
           "store it in one: model.save_pretrained(dir, max_shard_size=\"100GB\")");
  const std::string begin = head_of(*ops->open_read(path), 2);
  if (begin == "PK" || (begin[0] == '\x80' && begin[1] >= '\x02' && begin[1] <= '\x05'))
    refuse("it is a pickle (torch.save), which can run any program when it is read",
           "convert it where you trust it: GPT2LMHeadModel.from_pretrained(dir).save_pretrained(out, "
           "safe_serialization=True)");
  return path;
}

// The number of a name's block: 3 for "h.3.ln_1.weight", -1 outside blocks, and past every model's if it has
// too many digits.
std::int64_t block_of(std::string_view name) {
  if (!name.starts_with("h.")) return -1;
  std::int64_t block = 0;
  const auto [end, error] = std::from_chars(name.data() + 2, name.data() + name.size(), block);
  return error == std::errc::result_out_of_range ? std::numeric_limits<std::int64_t>::max() : block;
}

}  // namespace

HfWeights::HfWeights(const Path& path, const GptConfig& config)
    : config_(config), reader_(one_safetensors_file(path)) {
  const ParamLayout layout(config, WorldSize{1});
  read_names();
  read_orientation(layout);
  for (int u = 0; u < layout.num_units(); ++u) {
    for (const ParamTensor& t : layout.unit(u).tensors) check_tensor(t);
  }
  check_names(layout);
  if (config.tied) check_tied_head();
  check_hf_config(*posix_file_ops(), path, reader_.metadata(), config);
}

void HfWeights::refuse(const std::string& what, const std::string& fix) const {
  throw InputError(ExitCode::data, reader_.path().string(), what, fix);
}

void HfWeights::refuse_stranger(const SafeTensor& tensor, bool of_more_layers) const {
  refuse("tensor '" + shown(tensor.name) + "' does not belong to the workload's model",
         of_more_layers ? fix_of_shapes() : "a GPT-2 file: with this tensor it computes something else");
}

// Finds the model's tensors. Heads of other tasks next to it are ignored; unknown tensors within it are
// refused, because they would change what it computes.
void HfWeights::read_names() {
  std::string beside, prefix;
  for (const SafeTensor& t : reader_.tensors())
    if (our_name(t.name) == kEmbedding) prefix = prefix_of(t.name);
  for (const SafeTensor& t : reader_.tensors()) {
    if (t.name.find('@') != std::string::npos) refuse(kOwn, own_fix(parent_of(reader_.path())));
    const std::string name = our_name(t.name);
    if (name.empty()) {
      if (!prefix.empty() && without_wrappers(t.name).starts_with(prefix)) refuse_stranger(t, false);
      beside += (beside.empty() ? "" : ", ") + shown(t.name);
      continue;
    }
    has_biases_ = has_biases_ || is_bias(name);
    const auto [there, is_new] = tensors_.emplace(name, &t);
    if (!is_new)
      refuse(
          "tensors '" + shown(there->second->name) + "' and '" + shown(t.name) + "' are both " + shown(name),
          "a file with one model in it");
  }
  if (!beside.empty() && !tensors_.empty())
    notes_.push_back("left out, since they are no part of a GPT-2: " + shown(beside, 1000));
  if (!has_biases_ && !tensors_.empty())
    notes_.emplace_back("has no biases: they begin at zero, and are trained");
}

// Finds out whether matrices are [in, out] (Conv1D, as Hugging Face has them) or [out, in] (Linear).
void HfWeights::read_orientation(const ParamLayout& layout) {
  const SafeTensor *conv = nullptr, *linear = nullptr;
  for (const ParamTensor& t : layout.unit(1).tensors) {
    if (!t.name.ends_with(".c_attn.weight") && !t.name.ends_with(".c_fc.weight")) continue;
    const SafeTensor* found = find(t.name);
    if (found == nullptr) continue;
    if (found->shape == t.shape) linear = found;
    if (found->shape == Shape{t.shape[1], t.shape[0]}) conv = found;
  }
  if (conv != nullptr && linear != nullptr)
    refuse("tensor '" + shown(conv->name) + "' stands as [in, out], and '" + shown(linear->name) +
               "' as [out, in]",
           "all matrices of a file one way: as GPT2LMHeadModel saves them ([in, out]), or as Linear layers "
           "have them");
  linear_ = linear != nullptr;
  if (linear_) notes_.emplace_back("has its matrices as Linear layers do, [out, in] (nanoGPT's way)");
}

const SafeTensor* HfWeights::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

// The file's tensor for a name; null for a bias in a file without biases. The matrix that embedding and head
// share may have either's name.
const SafeTensor* HfWeights::source(const std::string& name) const {
  const SafeTensor* found = find(name);
  if (found == nullptr && name == kHead) found = find(kEmbedding);
  if (found == nullptr && name == kEmbedding) found = find(kHead);
  if (found == nullptr && !(name.ends_with(".bias") && !has_biases_))
    refuse("tensor '" + name + "' is missing", block_of(name) >= layers_in_file() && layers_in_file() > 0
                                                   ? fix_of_shapes()
                                                   : "a GPT-2 file; it holds " + model_in_file());
  return found;
}

Shape HfWeights::file_shape(const ParamTensor& tensor) const {
  if (linear_ && hf_transposed(tensor.name, tensor.shape)) return tensor.shape;
  return hf_shape(tensor.name, tensor.shape, config_.vocab);
}

// Whether a file's matrix has padding rows after the vocabulary's, up to a multiple of a power of two, for
// speed.
bool HfWeights::is_padded(const SafeTensor& found, const Shape& wanted) const {
  if (found.shape.size() != 2 || wanted.size() != 2 || found.shape[1] != wanted[1]) return false;
  for (std::int64_t to = 8; to <= 1024; to *= 2) {
    if (found.shape[0] != wanted[0] && found.shape[0] == round_up(wanted[0], to)) return true;
  }
  return false;
}

void HfWeights::check_tensor(const ParamTensor& wanted) const {
  const SafeTensor* source_of = source(wanted.name);
  if (source_of == nullptr) return;
  const SafeTensor& found = *source_of;
  const Shape shape = file_shape(wanted);
  const bool table = wanted.name == kEmbedding || wanted.name == kHead;
  if (found.shape != shape && !(table && is_padded(found, shape))) {
    const bool turned = hf_transposed(wanted.name, wanted.shape) && found.shape == Shape{shape[1], shape[0]};
    refuse("tensor '" + shown(found.name) + "' is " + shown(text(found.shape)) + ", " +
               (turned ? "turned round, since the file's c_attn and c_fc need "
                       : "the workload's model needs ") +
               text(shape),
           turned ? "all matrices of a file one way: as GPT2LMHeadModel saves them ([in, out]), or as Linear "
                    "layers have them"
                  : fix_of_shapes());
  }
  if (found.dtype != DType::f32 && found.dtype != DType::bf16 && found.dtype != DType::f16)
    refuse("tensor '" + shown(found.name) + "' holds " + found.stored_dtype + " numbers",
           "weights saved as F32, BF16 or F16");
}

void HfWeights::check_names(const ParamLayout& layout) {
  std::set<std::string_view> known = {kHead};
  for (int u = 0; u < layout.num_units(); ++u) {
    for (const ParamTensor& t : layout.unit(u).tensors) known.insert(t.name);
  }
  for (const auto& [name, tensor] : tensors_) {
    if (known.contains(name) || is_mask(name)) continue;
    refuse_stranger(*tensor, block_of(name) >= config_.layers);
  }
  const SafeTensor& wte = *source(kEmbedding);
  if (wte.shape[0] > config_.vocab)
    notes_.push_back("has " + std::to_string(wte.shape[0]) + " rows in " + shown(wte.name) +
                     ", of which the first " + std::to_string(config_.vocab) +
                     " are the vocabulary: the rest is padding, and left out");
}

// A copy of a tensor of the file, aligned as the file's bytes are not.
at::Tensor HfWeights::stored(const SafeTensor& tensor) const {
  at::Tensor copy = at::empty(tensor.shape, to_aten(*tensor.dtype));
  const std::span<const std::byte> bytes = reader_.bytes(tensor);
  std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
  return copy;
}

void HfWeights::check_tied_head() const {
  const SafeTensor* head = find(kHead);
  const SafeTensor& wte = *source(kEmbedding);
  if (head == nullptr || head == &wte) return;
  const bool alike = head->shape.size() == 2 && head->shape[1] == wte.shape[1] &&
                     (head->shape[0] == config_.vocab || is_padded(*head, {config_.vocab, wte.shape[1]}));
  const auto bytes = [&](const SafeTensor& t) {
    const std::span<const std::byte> all = reader_.bytes(t);
    return all.first(all.size() / static_cast<std::size_t>(t.shape[0]) *
                     static_cast<std::size_t>(config_.vocab));
  };
  const auto values = [&](const SafeTensor& t) {
    return stored(t).narrow(0, 0, config_.vocab).to(at::kFloat);
  };
  if (alike && (head->dtype == wte.dtype ? std::ranges::equal(bytes(*head), bytes(wte))
                                         : at::equal(values(*head), values(wte))))
    return;
  refuse("tensor '" + shown(head->name) + "' differs from wte.weight, but the workload's model is tied",
         "--set model.tied=off");
}

std::int64_t HfWeights::layers_in_file() const {
  std::set<std::string> blocks;
  for (const auto& [name, tensor] : tensors_) {
    if (name.starts_with("h.")) blocks.emplace(name.substr(0, name.find('.', 2)));
  }
  return static_cast<std::int64_t>(blocks.size());
}

// Whether the workload has the file's shapes already, so that another workload would not help.
bool HfWeights::is_workloads_model() const {
  const SafeTensor *wte = find(kEmbedding), *wpe = find("wpe.weight");
  const Shape tokens{config_.vocab, config_.width}, positions{config_.context, config_.width};
  return layers_in_file() == config_.layers && wte != nullptr && wpe != nullptr &&
         (wte->shape == tokens || is_padded(*wte, tokens)) && wpe->shape == positions;
}

std::string HfWeights::fix_of_shapes() const {
  if (is_workloads_model())
    return "weights of a GPT-2, whose other sizes follow from its width d: c_attn 3 d, c_fc 4 d";
  return (tensors_.empty() ? "a GPT-2 file; it holds " : "a workload with the file's model: ") +
         model_in_file();
}

// The model's settings in a workload that fits this file, as far as its shapes tell.
std::string HfWeights::model_in_file() const {
  if (tensors_.empty())
    return reader_.tensors().empty()
               ? "nothing"
               : "other tensors, such as '" + shown(reader_.tensors().front().name) + "'";
  std::string out = "layers " + std::to_string(layers_in_file());
  const auto add = [&](const char* tensor, const char* first, const char* second) {
    const SafeTensor* t = find(tensor);
    if (t == nullptr || t->shape.size() != 2) return;
    out += std::string(", ") + first + " " + std::to_string(t->shape[0]);
    if (second != nullptr) out += std::string(", ") + second + " " + std::to_string(t->shape[1]);
  };
  add("wte.weight", "vocab", "width");
  add("wpe.weight", "context", nullptr);
  return out;
}

// Refuses numbers that are not finite, because they would spread to everything within a few steps. Only the
// first `rows` rows are used; the others are padding.
void HfWeights::require_finite(const SafeTensor& tensor, std::int64_t rows) const {
  const std::span<const std::byte> all = reader_.bytes(tensor);
  const std::span<const std::byte> bytes =
      all.first(all.size() / static_cast<std::size_t>(tensor.shape.at(0)) * static_cast<std::size_t>(rows));
  const std::optional<std::int64_t> at = first_nonfinite(bytes, *tensor.dtype);
  if (!at) return;
  throw InputError(ExitCode::data, reader_.path().string(),
                   "tensor '" + tensor.name +
                       "' holds a number that is not finite (NaN or infinite), element " +
                       std::to_string(*at) + " of " +
                       std::to_string(static_cast<std::int64_t>(bytes.size()) / size_of(*tensor.dtype)),
                   "weights that were saved before the training that made them went wrong");
}

void HfWeights::load_unit(const ParamLayout& layout, int unit, const UnitTensors& params) const {
  params.sharded.zero_();
  if (params.whole.defined()) params.whole.zero_();
  for (const ParamTensor& t : layout.unit(unit).tensors) {
    const SafeTensor* source_of = source(t.name);
    if (source_of == nullptr) continue;  // stays zero
    const SafeTensor& found = *source_of;
    const at::Tensor here = file_view(t, config_, params, linear_);
    require_finite(found, here.size(0));
    const at::Tensor whole = stored(found);
    here.copy_(whole.dim() == 2 ? whole.narrow(0, 0, here.size(0)) : whole);
  }
}

void export_hf_weights(File& file, const ParamLayout& layout, DType dtype,
                       const std::function<UnitTensors(int unit)>& unit) {
  std::vector<SafeTensorSpec> specs;
  for (int u = 0; u < layout.num_units(); ++u) {
    for (const ParamTensor& t : layout.unit(u).tensors) {
      specs.push_back({hf_name(t.name), dtype, hf_shape(t.name, t.shape, layout.config().vocab)});
    }
  }
  SafetensorsWriter writer(file, std::move(specs), hf_metadata(layout.config()));
  for (int u = 0; u < layout.num_units(); ++u) {
    const UnitTensors tensors = unit(u);
    for (const ParamTensor& t : layout.unit(u).tensors) {
      const at::Tensor part = file_view(t, layout.config(), tensors, /*linear=*/false);
      const at::Tensor out = part.to(at::kCPU, to_aten(dtype)).contiguous();
      writer.write(hf_name(t.name), {static_cast<const std::byte*>(out.const_data_ptr()), out.nbytes()});
    }
  }
  writer.finish();
}

}  // namespace sc

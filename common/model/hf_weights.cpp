#include "common/model/hf_weights.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <vector>

#include "common/base/check.h"
#include "common/base/finite.h"
#include "common/input/printable.h"
#include "common/model/hf_names.h"

namespace sc {
namespace {

const std::string kPrefix = kHfPrefix;
const std::string kHead = kHfHead;

using Shape = std::vector<std::int64_t>;

std::string text(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return out + "]";
}

// The shape of `t` in a file.
Shape file_shape(const ParamTensor& t, const GptConfig& config) {
  return hf_shape(t.name, t.shape, config.vocab);
}

// Buffers that old files carry: the causal mask and the score of masked positions.
bool is_mask(std::string_view name) {
  return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

std::string_view without_prefix(std::string_view name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

// The part of a tensor that exists in a file, in the file's orientation: a view of the unit's vector.
at::Tensor file_view(const ParamTensor& t, const GptConfig& config, const UnitTensors& tensors) {
  const at::Tensor whole = tensors.segment(t.segment).narrow(0, t.offset, t.numel()).view(t.shape);
  if (hf_transposed(t.name, t.shape)) return whole.t();
  return whole.narrow(0, 0, file_shape(t, config)[0]);
}

// What people have beside a safetensors file.
const Path& one_safetensors_file(const Path& path) {
  const auto refuse = [&](const char* what, const char* fix) {
    throw InputError(ExitCode::data, path.string(), what, fix);
  };
  if (path.filename().string().ends_with(".index.json"))
    refuse("it lists the files of a model that is stored in several",
           "store it in one: model.save_pretrained(dir, max_shard_size=\"100GB\")");
  std::string begin(2, '\0');
  posix_file_ops()->open_read(path)->read_at(std::as_writable_bytes(std::span(begin)), Bytes(0));
  if (begin == "PK" || (begin[0] == '\x80' && begin[1] >= '\x02' && begin[1] <= '\x05'))
    refuse("it is a pickle (torch.save), which can run any program when it is read",
           "convert it where you trust it: GPT2LMHeadModel.from_pretrained(dir).save_pretrained(out, "
           "safe_serialization=True)");
  return path;
}

}  // namespace

HfWeights::HfWeights(const Path& path, const GptConfig& config)
    : config_(config), reader_(one_safetensors_file(path)) {
  const ParamLayout layout(config, WorldSize{1});
  for (int u = 0; u < layout.num_units(); ++u) {
    for (const ParamTensor& t : layout.unit(u).tensors) check_tensor(t);
  }
  check_names(layout);
  if (config.tied) check_tied_head();
}

const SafeTensor* HfWeights::find(const std::string& name) const {
  const SafeTensor* plain = reader_.find(name);
  return plain != nullptr ? plain : reader_.find(kPrefix + name);
}

const SafeTensor& HfWeights::source(const std::string& name) const {
  const SafeTensor* found = find(name);
  if (found == nullptr && name == kHead) found = find("wte.weight");
  if (found == nullptr) {
    throw InputError(ExitCode::data, reader_.path().string(), "tensor '" + name + "' is missing",
                     "a GPT-2 file; it holds " + model_in_file());
  }
  return *found;
}

void HfWeights::check_tensor(const ParamTensor& wanted) const {
  const SafeTensor& found = source(wanted.name);
  const Shape shape = file_shape(wanted, config_);
  if (found.shape != shape) {
    throw InputError(ExitCode::data, reader_.path().string(),
                     "tensor '" + shown(found.name) + "' is " + shown(text(found.shape)) +
                         ", the workload's model needs " + text(shape),
                     "a workload with the file's model: " + model_in_file());
  }
  if (found.dtype != DType::f32 && found.dtype != DType::bf16 && found.dtype != DType::f16) {
    throw InputError(ExitCode::data, reader_.path().string(),
                     "tensor '" + shown(found.name) + "' holds " + found.stored_dtype + " numbers",
                     "weights saved as F32, BF16 or F16");
  }
}

void HfWeights::check_names(const ParamLayout& layout) const {
  std::set<std::string_view> known = {kHead};
  for (int u = 0; u < layout.num_units(); ++u) {
    for (const ParamTensor& t : layout.unit(u).tensors) known.insert(t.name);
  }
  for (const SafeTensor& t : reader_.tensors()) {
    const std::string_view name = without_prefix(t.name);
    if (known.contains(name) || is_mask(name)) continue;
    throw InputError(ExitCode::data, reader_.path().string(),
                     "tensor '" + shown(t.name) + "' does not belong to the workload's model",
                     "a workload with the file's model: " + model_in_file());
  }
}

void HfWeights::check_tied_head() const {
  const SafeTensor* head = find(kHead);
  if (head == nullptr) return;
  const SafeTensor& wte = source("wte.weight");
  const auto a = reader_.bytes(*head), b = reader_.bytes(wte);
  if (head->shape == wte.shape && a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0)
    return;
  throw InputError(ExitCode::data, reader_.path().string(),
                   "tensor '" + head->name + "' differs from wte.weight, but the workload's model is tied",
                   "model.tied = false");
}

// What a workload must say to fit this file, as far as shapes tell.
std::string HfWeights::model_in_file() const {
  std::set<std::string> blocks;
  for (const SafeTensor& t : reader_.tensors()) {
    const std::string_view name = without_prefix(t.name);
    if (name.starts_with("h.")) blocks.emplace(name.substr(0, name.find('.', 2)));
  }
  std::string out = "layers " + std::to_string(blocks.size());
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

// A model with such a number computes nothing but such numbers, some steps later.
void HfWeights::require_finite(const SafeTensor& tensor) const {
  const std::span<const std::byte> bytes = reader_.bytes(tensor);
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
  const c10::InferenceMode guard;
  params.sharded.zero_();
  if (params.whole.defined()) params.whole.zero_();
  for (const ParamTensor& t : layout.unit(unit).tensors) {
    const SafeTensor& found = source(t.name);
    const at::Tensor stored =
        at::empty(found.shape, to_aten(*found.dtype));  // aligned, unlike the file's bytes
    const std::span<const std::byte> bytes = reader_.bytes(found);
    require_finite(found);
    std::memcpy(stored.mutable_data_ptr(), bytes.data(), bytes.size());
    file_view(t, config_, params).copy_(stored);
  }
}

void export_hf_weights(File& file, const ParamLayout& layout, DType dtype,
                       const std::function<UnitTensors(int unit)>& unit) {
  const c10::InferenceMode guard;
  std::vector<SafeTensorSpec> specs;
  for (int u = 0; u < layout.num_units(); ++u) {
    for (const ParamTensor& t : layout.unit(u).tensors) {
      specs.push_back({hf_name(t.name), dtype, file_shape(t, layout.config())});
    }
  }
  SafetensorsWriter writer(file, std::move(specs), {{"format", "pt"}});
  for (int u = 0; u < layout.num_units(); ++u) {
    const UnitTensors tensors = unit(u);
    for (const ParamTensor& t : layout.unit(u).tensors) {
      const at::Tensor part = file_view(t, layout.config(), tensors);
      const at::Tensor out = part.to(at::kCPU, to_aten(dtype)).contiguous();
      writer.write(hf_name(t.name), {static_cast<const std::byte*>(out.const_data_ptr()), out.nbytes()});
    }
  }
  writer.finish();
}

}  // namespace sc

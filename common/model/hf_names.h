// Names and shapes of GPT-2's tensors in Hugging Face's files, and the config.json that describes the
// computation. No torch.
//   Source  transformers' modeling_gpt2.py, configuration_gpt2.py and activations.py.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/workload.h"
#include "common/storage/file_ops.h"

namespace sc {

/// The name of an untied model's head, the only one without the prefix "transformer.".
inline constexpr const char* kHfHead = "lm_head.weight";
inline constexpr const char* kHfPrefix = "transformer.";

/// What Hugging Face's save_pretrained calls our tensor `name`.
std::string hf_name(std::string_view name);

/// Our name for a tensor in any program's file: without the words that DDP, torch.compile, FSDP and others
/// add, and without the model's prefix ("module._orig_mod.transformer.h.0.ln_1.weight" -> "h.0.ln_1.weight").
/// Empty if the tensor is not part of a GPT-2 but of something attached to it (a classifier's head).
std::string our_name(std::string_view in_file);
/// A tensor's name in a file without the words of wrappers ("module.", "_orig_mod.").
std::string without_wrappers(std::string_view in_file);
/// What precedes our_name() in a file's name for a tensor: "transformer." or nothing.
std::string prefix_of(std::string_view in_file);

/// Whether Hugging Face stores a tensor transposed: every matrix of a block is a Conv1D there, [in, out], and
/// [out, in] here.
bool hf_transposed(std::string_view name, const std::vector<std::int64_t>& shape);

/// The shape that a tensor has in a file, where wte and an untied head have `vocab` rows and no padding.
std::vector<std::int64_t> hf_shape(std::string_view name, const std::vector<std::int64_t>& shape,
                                   std::int64_t vocab);

/// The metadata of a file that this program writes, which contain its config.json.
using HfMetadata = std::map<std::string, std::string>;
HfMetadata hf_metadata(const GptConfig& config);
/// Compares `config` with a weight file's metadata, or without any with the config.json next to the file.
///   Errors  InputError (exit 65) with a key and both values, or if the file cannot be read.
void check_hf_config(FileOps& ops, const Path& weights, const HfMetadata& metadata, const GptConfig& config);
/// Whether transformers loads a file of this name, with the config.json next to it.
inline bool is_hf_folder(const Path& weights) { return weights.filename() == "model.safetensors"; }
/// Writes a config.json next to a file that is_hf_folder(), unless there is one.
void write_hf_config(FileOps& ops, const Path& weights, const GptConfig& config);

}  // namespace sc

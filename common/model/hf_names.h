// Names and shapes of GPT-2's tensors in Hugging Face's files, and the config.json that says how they are
// computed. No torch.
//   Source: transformers' modeling_gpt2.py, configuration_gpt2.py and activations.py.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/workload.h"
#include "common/storage/file_ops.h"

namespace sc {

/// Of an untied model; the only name without the prefix "transformer.".
inline constexpr const char* kHfHead = "lm_head.weight";
inline constexpr const char* kHfPrefix = "transformer.";

/// What save_pretrained calls our tensor `name`.
std::string hf_name(std::string_view name);

/// Our name of a tensor that others have written: without what DDP, torch.compile, FSDP and others put into
/// the names of what they wrap, and without what stands before the model
/// ("module._orig_mod.transformer.h.0.ln_1.weight" -> "h.0.ln_1.weight").
/// Empty: it is no part of a GPT-2, but of something beside it (a classifier's head).
std::string our_name(std::string_view in_file);
/// The name in a file without the words of wrappers ("module.", "_orig_mod.").
std::string without_wrappers(std::string_view in_file);
/// What stands before our_name() there: "transformer.", or nothing.
std::string prefix_of(std::string_view in_file);

/// Whether a tensor of our name and shape stands transposed in a file: every matrix of a block is a Conv1D
/// there, [in, out], and [out, in] here.
bool hf_transposed(std::string_view name, const std::vector<std::int64_t>& shape);

/// Its shape in a file; wte and an untied head have `vocab` rows there and padding rows behind them here.
std::vector<std::int64_t> hf_shape(std::string_view name, const std::vector<std::int64_t>& shape,
                                   std::int64_t vocab);

/// Of a file that this program writes: its config.json travels with it.
using HfMetadata = std::map<std::string, std::string>;
HfMetadata hf_metadata(const GptConfig& config);
/// Compares how `config` computes with what a file's metadata says, or else a config.json beside it.
///   Errors  InputError (exit 65) with a key and both values; or where it cannot be read.
void check_hf_config(FileOps& ops, const Path& weights, const HfMetadata& metadata, const GptConfig& config);
/// Whether transformers loads a file of this name, by the config.json beside it.
inline bool is_hf_folder(const Path& weights) { return weights.filename() == "model.safetensors"; }
/// Puts a config.json beside such a file, unless there is one.
void write_hf_config(FileOps& ops, const Path& weights, const GptConfig& config);

}  // namespace sc

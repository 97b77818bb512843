#include "common/model/hf_names.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>

#include "common/input/json_node.h"
#include "common/input/printable.h"
#include "common/storage/atomic_dir.h"

namespace sc {

std::string hf_name(std::string_view name) {
  return name == kHfHead ? std::string(name) : kHfPrefix + std::string(name);
}

namespace {

constexpr std::array<std::string_view, 5> kWrappers = {"_orig_mod", "module", "_fsdp_wrapped_module",
                                                       "_checkpoint_wrapped_module", "_forward_module"};

bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

// Whether word `i` begins the model's own part of a name: "wte", or "h" before a block's number.
bool begins_model(const std::vector<std::string_view>& words, std::size_t i) {
  if (words[i] == "h") return i + 1 < words.size() && is_number(words[i + 1]);
  return i + 1 < words.size() &&
         (words[i] == "wte" || words[i] == "wpe" || words[i] == "ln_f" || words[i] == "lm_head");
}

// The words between a name's dots, without those that wrappers add.
std::vector<std::string_view> words_of(std::string_view in_file) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= in_file.size();) {
    const std::size_t end = std::min(in_file.find('.', begin), in_file.size());
    const std::string_view word = in_file.substr(begin, end - begin);
    if (std::ranges::find(kWrappers, word) == kWrappers.end()) words.push_back(word);
    begin = end + 1;
  }
  return words;
}

}  // namespace

std::string without_wrappers(std::string_view in_file) {
  return fmt::format("{}", fmt::join(words_of(in_file), "."));
}

std::string prefix_of(std::string_view in_file) {
  const std::string name = without_wrappers(in_file);
  return name.substr(0, name.size() - our_name(in_file).size());
}

std::string our_name(std::string_view in_file) {
  const std::vector<std::string_view> words = words_of(in_file);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (begins_model(words, i)) return fmt::format("{}", fmt::join(std::span(words).subspan(i), "."));
  }
  return "";
}

bool hf_transposed(std::string_view name, const std::vector<std::int64_t>& shape) {
  return shape.size() == 2 && name.starts_with("h.");
}

std::vector<std::int64_t> hf_shape(std::string_view name, const std::vector<std::int64_t>& shape,
                                   std::int64_t vocab) {
  if (hf_transposed(name, shape)) return {shape[1], shape[0]};
  if (shape.size() == 2 && (name == "wte.weight" || name == kHfHead)) return {vocab, shape[1]};
  return shape;
}

namespace {

constexpr const char* kConfig = "config.json";

std::string hf_config(const GptConfig& config) {
  return fmt::format(
      R"({{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "tie_word_embeddings": {},
 "n_embd": {}, "n_head": {}, "n_layer": {}, "n_positions": {}, "vocab_size": {}, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-05, "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false}}
)",
      config.tied, config.width, config.heads, config.layers, config.context, config.vocab);
}

constexpr std::array kTanhGelu = {"gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh",
                                  "gelu_python_tanh"};

}  // namespace

HfMetadata hf_metadata(const GptConfig& config) { return {{"format", "pt"}, {kConfig, hf_config(config)}}; }

void check_hf_config(FileOps& ops, const Path& weights, const HfMetadata& metadata, const GptConfig& config) {
  constexpr JsonLimits kLimits{.bytes = std::size_t{1} << 20U};
  const std::string either = "; or, if the config.json is not these weights', a folder of their own";
  const auto own = metadata.find(kConfig);
  const Path where = own == metadata.end() ? parent_of(weights) / kConfig : weights;
  if (ops.kind(where) != PathKind::file) return;
  const std::string text = own == metadata.end() ? read_file(ops, where) : own->second;
  const auto theirs = of_json<InputError>(text, kLimits, where.string(), ExitCode::data, "mend it" + either,
                                          [](const JsonNode& node) { return node.value(); });
  const nlohmann::json ours = nlohmann::json::parse(hf_config(config));
  for (const std::string key :
       {"model_type", "n_embd", "n_head", "n_layer", "n_positions", "activation_function",
        "layer_norm_epsilon", "scale_attn_weights", "scale_attn_by_inverse_layer_idx"}) {
    if (!theirs.contains(key) || theirs[key] == ours[key]) continue;
    if (ours[key] == "gelu_new" && std::ranges::find(kTanhGelu, theirs[key]) != kTanhGelu.end()) continue;
    const std::string value = shown(theirs[key].dump());
    throw InputError(ExitCode::data, where.string(),
                     fmt::format("\"{}\" is {}, and this run computes {}", key, value, ours[key].dump()),
                     fmt::format("{}{}{}", key == "n_head" ? "--set model.heads=" : "weights of such a model",
                                 key == "n_head" ? value : "", either));
  }
}

void write_hf_config(FileOps& ops, const Path& weights, const GptConfig& config) {
  if (is_hf_folder(weights)) (void)atomic_write_new(ops, parent_of(weights) / kConfig, hf_config(config));
}

}  // namespace sc

#include "common/model/hf_names.h"

#include <algorithm>
#include <array>

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

// Whether a model's own names begin with the word at `i`.
bool begins_model(const std::vector<std::string_view>& words, std::size_t i) {
  if (words[i] == "h") return i + 1 < words.size() && is_number(words[i + 1]);
  return i + 1 < words.size() &&
         (words[i] == "wte" || words[i] == "wpe" || words[i] == "ln_f" || words[i] == "lm_head");
}

// Those of no wrapper.
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
  const std::vector<std::string_view> words = words_of(in_file);
  std::string name;
  for (const std::string_view word : words) name += (name.empty() ? "" : ".") + std::string(word);
  return name;
}

std::string prefix_of(std::string_view in_file) {
  const std::string name = without_wrappers(in_file);
  return name.substr(0, name.size() - our_name(in_file).size());
}

std::string our_name(std::string_view in_file) {
  const std::vector<std::string_view> words = words_of(in_file);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!begins_model(words, i)) continue;
    std::string name(words[i]);
    while (++i < words.size()) name += "." + std::string(words[i]);
    return name;
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

}  // namespace sc

// Fuzzes a tokenizer's merges, which the input has up to its first empty line; then follows a text, which the
// tokens must give back.
#include <algorithm>
#include <string>

#include "common/data/bpe_tokenizer.h"
#include "tests/fuzz/support.h"

SC_FUZZ_TARGET(bpe_merges) {
  const std::string input = text_of(data, size);
  const std::size_t end = std::min(input.find("\n\n"), input.size());
  const std::string merges = input.substr(0, std::min(end + 1, size)), text = input.substr(end);
  if (const auto bpe = taken([&] { return sc::BpeTokenizer("fuzz", merges, "merges"); }))
    require(bpe->decode(bpe->encode(text)) == text, "tokens do not give their text back");
  return 0;
}

// Tells where a parser is: how many characters it has taken. The standard library alone.
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>

namespace sc {

/// Two of them are the range of a text; `taken` lives with its owner, since parsers copy iterators.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  std::size_t* taken;
  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    ++at;
    ++*taken;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
  bool operator!=(const CountingIterator& other) const { return at != other.at; }
};

inline CountingIterator begin_of(std::string_view text, std::size_t* taken) { return {text.data(), taken}; }
inline CountingIterator end_of(std::string_view text, std::size_t* taken) {
  return {text.data() + text.size(), taken};
}

}  // namespace sc

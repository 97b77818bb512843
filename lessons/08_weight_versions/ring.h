// Items by a number that only grows (an update, a step, a micro-batch): the last `size` of them are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sc {

template <class T>
class Ring {
 public:
  explicit Ring(std::int64_t size) : items_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] T& operator[](std::int64_t number) {
    const auto size = static_cast<std::int64_t>(items_.size());
    return items_[static_cast<std::size_t>((number % size + size) % size)];  // -1 comes before 0
  }

 private:
  std::vector<T> items_;
};

}  // namespace sc

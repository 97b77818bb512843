// Exchanges short texts and lists of numbers between ranks, over any communicator. Used when a run starts and
// ends; the ledger does not count the tensors.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/comm/communicator.h"

namespace sc {

/// All ranks' texts, by rank, on rank 0; empty on other ranks.Texts of any length and bytes. Collective.
///   Cost  one all_gather of i64 [1], and one message from each other rank whose text is not empty.
std::vector<std::string> gather_strings(Communicator& comm, const std::string& text);
template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> values_of_bytes(std::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// The values of all ranks, by rank, on rank 0; ranks may have different numbers of values. Collective.
template <class T>
std::vector<std::vector<T>> gather_values(Communicator& comm, const std::vector<T>& mine) {
  std::vector<std::vector<T>> all;
  for (const std::string& of_rank : gather_strings(comm, bytes_of_values(mine)))
    all.push_back(values_of_bytes<T>(of_rank));
  return all;
}
/// The bytes of every rank, by rank, on every rank; all ranks pass equally many. Collective.
///   Cost  one all_gather of the bytes. No messages, which other users of `comm` could take for theirs.
std::string gather_bytes(Communicator& comm, const std::string& mine, const What& what);
template <class T>
std::vector<T> gather_on_all(Communicator& comm, const T& mine, const What& what) {
  return values_of_bytes<T>(gather_bytes(comm, bytes_of_values(std::vector<T>{mine}), what));
}
/// Rank 0's text on every rank. Collective.
///   Cost  two broadcasts.
std::string broadcast_string(Communicator& comm, const std::string& text);
/// Every rank's values, by rank, on every rank. Collective.
///   Cost  gather_values and four broadcasts.
template <class T>
std::vector<std::vector<T>> all_gather_values(Communicator& comm, const std::vector<T>& mine) {
  std::vector<std::int64_t> ends;
  std::vector<T> values;
  for (const std::vector<T>& of_rank : gather_values(comm, mine)) {
    values.insert(values.end(), of_rank.begin(), of_rank.end());
    ends.push_back(static_cast<std::int64_t>(values.size()));
  }
  ends = values_of_bytes<std::int64_t>(broadcast_string(comm, bytes_of_values(ends)));
  values = values_of_bytes<T>(broadcast_string(comm, bytes_of_values(values)));
  std::vector<std::vector<T>> all;
  auto next = values.begin();
  for (const std::int64_t end : ends) {
    const auto last = values.begin() + end;
    all.emplace_back(next, last);
    next = last;
  }
  return all;
}
/// All ranks' texts on every rank, as "rank 1: ...; rank 3: ..."; empty ones are left out. Collective.
std::string said_by_all(Communicator& comm, const std::string& mine);

}  // namespace sc

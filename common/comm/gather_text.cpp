#include "common/comm/gather_text.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <spdlog/fmt/fmt.h>

#include <cstring>

namespace sc {
namespace {

at::Tensor bytes_of_text(const std::string& text) {
  at::Tensor t = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(t.mutable_data_ptr(), text.data(), text.size());
  return t;
}

std::string text_of_bytes(const at::Tensor& t) {
  if (t.numel() == 0) return {};
  return {static_cast<const char*>(t.const_data_ptr()), static_cast<std::size_t>(t.numel())};
}

at::Tensor one_number(std::int64_t value) {
  at::Tensor t = at::empty({1}, at::kLong);
  *t.mutable_data_ptr<std::int64_t>() = value;
  return t;
}

}  // namespace

std::vector<std::string> gather_strings(Communicator& comm, const std::string& text) {
  const c10::InferenceMode inference;
  const std::int64_t world = to_int(comm.size());
  at::Tensor lengths = at::empty({world}, at::kLong);
  comm.all_gather(one_number(static_cast<std::int64_t>(text.size())), lengths, {OpPurpose::numbers}).wait();
  if (comm.rank() != Rank{0}) {
    if (!text.empty()) comm.send(bytes_of_text(text), Rank{0}, {OpPurpose::text}).wait();
    return {};
  }
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  texts[0] = text;
  for (int r = 1; r < world; ++r) {
    at::Tensor bytes = at::empty({lengths.const_data_ptr<std::int64_t>()[r]}, at::kByte);
    if (bytes.numel() > 0) comm.recv(bytes, Rank{r}, {OpPurpose::text}).wait();
    texts[static_cast<std::size_t>(r)] = text_of_bytes(bytes);
  }
  return texts;
}

std::string gather_bytes(Communicator& comm, const std::string& mine, const What& what) {
  const c10::InferenceMode inference;
  const at::Tensor one = bytes_of_text(mine);
  at::Tensor all = at::empty({one.numel() * to_int(comm.size())}, at::kByte);
  comm.all_gather(one, all, what).wait();
  return text_of_bytes(all);
}

std::string broadcast_string(Communicator& comm, const std::string& text) {
  const c10::InferenceMode inference;
  at::Tensor length = one_number(static_cast<std::int64_t>(text.size()));
  comm.broadcast(length, Rank{0}, {OpPurpose::numbers}).wait();
  at::Tensor bytes = comm.rank() == Rank{0} ? bytes_of_text(text)
                                            : at::empty({*length.const_data_ptr<std::int64_t>()}, at::kByte);
  if (bytes.numel() > 0) comm.broadcast(bytes, Rank{0}, {OpPurpose::text}).wait();
  return text_of_bytes(bytes);
}

std::string said_by_all(Communicator& comm, const std::string& mine) {
  std::string all;
  const std::vector<std::string> of_ranks = gather_strings(comm, mine);
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (!of_ranks[rank].empty())
      all += (all.empty() ? "" : "; ") + fmt::format("rank {}: {}", rank, of_ranks[rank]);
  }
  return broadcast_string(comm, all);
}

}  // namespace sc

// A disk with planted faults, below a BlockFile. No torch.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "common/storage/block_io.h"

namespace sc {

/// Passes requests on to `inner`, except for requests number nth, nth + 1, ... of one kind, which get a
/// fault.
class FaultyBlockIo final : public BlockIo {
 public:
  enum class What : std::uint8_t {
    answers,  // moves nothing and says `value`: -EIO, 0
    cuts,     // moves the first `value` bytes and says so
    loses,    // moves nothing and says that it moved all
    flips,    // moves all, then flips a bit of the first byte in memory
    breaks,   // the engine itself fails
  };
  struct Fault {
    BlockRequest::Kind kind;
    What what;
    std::int64_t value = 0;
    std::int64_t nth = 0;  // 0-based, among the requests of that kind
    std::int64_t times = 1;
  };
  FaultyBlockIo(std::unique_ptr<BlockIo> inner, Fault fault) : inner_(std::move(inner)), fault_(fault) {}

  void submit(const BlockRequest& request) override;
  BlockResult reap() override;

 private:
  std::unique_ptr<BlockIo> inner_;
  Fault fault_;
  std::int64_t matched_ = 0;
  std::deque<BlockResult> answers_;
  std::map<std::uint64_t, std::byte*> flips_;
  std::map<std::uint64_t, std::int64_t> cuts_;
};

}  // namespace sc

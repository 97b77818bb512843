// A BlockFile's transfers as operations, issued, waited for and recorded like messages and copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "common/comm/communicator.h"
#include "common/storage/block_file.h"
#include "common/watch/comm_record.h"

namespace sc {

/// Reads and writesextents of a BlockFile, counted as fp32 elements. BlockFile tells what the caller must do.
///   Ticket   wait() and wait_on_host() do the same; another thread may wait for end().
///   what     names the data; shown in plan, record and messages.
///   of_step  the training step that the transfer counts for, whenever it is issued; empty: the current step.
class RecordedFile {
 public:
  /// A function that the issuing thread calls for each transfer, with the time at which it was issued.
  using Watch =
      std::function<void(CommKind kind, DiskTransfer::Clock::time_point issued, DiskTransfer transfer)>;
  /// Records transfers in `record`, or nowhere if it is null.
  RecordedFile(BlockFile& file, std::shared_ptr<CommRecord> record, Watch watch = {})
      : file_(file), record_(std::move(record)), watch_(std::move(watch)) {}
  Ticket read(std::size_t extent, std::span<std::byte> into, const What& what = {},
              std::optional<std::int64_t> of_step = {});
  Ticket write(std::size_t extent, std::span<const std::byte> from, const What& what = {},
               std::optional<std::int64_t> of_step = {});

 private:
  template <class Start>
  Ticket transfer(CommKind kind, std::size_t extent, const What& what, std::optional<std::int64_t> of_step,
                  const Start& start);

  BlockFile& file_;
  const std::shared_ptr<CommRecord> record_;
  const Watch watch_;
};

}  // namespace sc

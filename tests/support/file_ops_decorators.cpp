#include "tests/support/file_ops_decorators.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace sc {

CountingFileOps::Count CountingFileOps::of(FileOp op) const {
  const std::scoped_lock lock(mutex_);
  return counts_.at(static_cast<std::size_t>(op));
}

void CountingFileOps::after(const FileCall& call, bool changed) {
  const std::scoped_lock lock(mutex_);
  Count& count = counts_.at(static_cast<std::size_t>(call.op));
  if (changed) ++count.calls;
  count.bytes += call.size;
}

void FaultyFileOps::before(const FileCall& call) {
  if (fault_.op.has_value() ? call.op != *fault_.op : !is_mutating(call.op)) return;
  if (call.path.string().find(fault_.path_contains) == std::string::npos) return;
  {
    const std::scoped_lock lock(mutex_);
    const std::int64_t turn = matched_++;
    if (turn != fault_.nth && !(fault_.lasting && turn > fault_.nth)) return;
  }
  std::string action(name_of(call.op));
  if (call.op == FileOp::write) {
    const auto half = call.bytes.first(call.bytes.size() / 2);
    call.file->write_some(half, call.offset);
    action = fmt::format("write {} bytes at byte {}", call.bytes.size() - half.size(),
                         call.offset.value() + static_cast<std::int64_t>(half.size()));
  } else if (call.op == FileOp::read) {
    action = fmt::format("read {} bytes at byte {}", call.size.value(), call.offset.value());
  }
  const bool reads = call.op == FileOp::read;
  throw file_error(reads ? FileIntent::read : FileIntent::write, call.path, action, fault_.error);
}

}  // namespace sc

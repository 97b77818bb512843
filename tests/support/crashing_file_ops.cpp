#include "tests/support/crashing_file_ops.h"

#include <algorithm>
#include <utility>

namespace sc {

struct CrashingFileOps::Undo {
  FileOp op;  // write (also a truncating create), create, make_dir, rename, exchange, remove
  Path path, other;
  std::int64_t offset = 0, size = 0, old_size = 0;  // write: what it touched; the file's length before
  std::string old_bytes = {};                       // write: what it overwrote
  PathKind replaced = PathKind::absent;             // remove, rename: what went away
  std::string replaced_content = {};

  /// The file's content without this write, the state in which a crash with `data` leaves it.
  [[nodiscard]] std::string taken_out_of(std::string content, CrashLoss::Data data) const;
};

namespace {

/// `path` with its leading part `from` replaced by `to`.
Path renamed(const Path& path, const Path& from, const Path& to) {
  const std::string text = path.string(), head = from.string();
  if (text == head) return to;
  if (text.size() > head.size() && text.compare(0, head.size(), head) == 0 && text[head.size()] == '/')
    return to.string() + text.substr(head.size());
  return path;
}

Path swapped(const Path& path, const Path& a, const Path& b) {
  const Path forward = renamed(path, a, b);
  return forward != path ? forward : renamed(path, b, a);
}

}  // namespace

std::string CrashingFileOps::Undo::taken_out_of(std::string content, CrashLoss::Data data) const {
  const auto at = static_cast<std::size_t>(offset);
  const std::size_t end = std::min(content.size(), at + static_cast<std::size_t>(size));
  if (at < end) std::fill(content.begin() + offset, content.begin() + static_cast<std::int64_t>(end), '\0');
  if (content.size() < at + old_bytes.size()) content.resize(at + old_bytes.size());
  content.replace(at, old_bytes.size(), old_bytes);
  if (data == CrashLoss::Data::lost) content.resize(static_cast<std::size_t>(old_size));
  return content;
}

CrashingFileOps::CrashingFileOps(FileOps& inner, std::int64_t crash_at, CrashLoss loss)
    : HookedFileOps(inner), crash_at_(crash_at), loss_(loss) {}

CrashingFileOps::~CrashingFileOps() = default;

void CrashingFileOps::before(const FileCall& call) {
  if (crashed_) throw Crash();
  if (!is_mutating(call.op)) return;
  if (calls_ == crash_at_) {
    crash(call);
    throw Crash();
  }
  ++calls_;
  record(call);
}

void CrashingFileOps::save_replaced(Undo& undo, const Path& path) {
  undo.replaced = inner().kind(path);
  if (undo.replaced != PathKind::file) return;
  std::string content = read_file(inner(), path);
  if (loss_.data != CrashLoss::Data::kept)
    for (const auto& write : undo_) {
      if (write->op != FileOp::write || write->path != path) continue;
      content = write->taken_out_of(std::move(content), loss_.data);
    }
  undo.replaced_content = std::move(content);
}

void CrashingFileOps::record(const FileCall& call) {
  pending_.reset();
  if (call.op == FileOp::sync || call.op == FileOp::sync_dir) return;
  auto undo = std::make_unique<Undo>(Undo{.op = call.op, .path = call.path, .other = call.other});
  if (call.op == FileOp::write) {
    undo->offset = call.offset.value();
    undo->size = call.size.value();
    undo->old_size = call.file->size().value();
    undo->old_bytes.resize(
        static_cast<std::size_t>(std::clamp<std::int64_t>(undo->old_size - undo->offset, 0, undo->size)));
    call.file->read_some(std::as_writable_bytes(std::span(undo->old_bytes)), call.offset);
  } else if (call.op == FileOp::create && inner().kind(call.path) == PathKind::file) {
    undo->op = FileOp::write;  // if it succeeds it truncates
    undo->old_bytes = read_file(inner(), call.path);
    undo->old_size = undo->size = static_cast<std::int64_t>(undo->old_bytes.size());
  } else if (call.op == FileOp::remove) {
    save_replaced(*undo, call.path);
  } else if (call.op == FileOp::rename) {
    save_replaced(*undo, call.other);
  }
  pending_ = std::move(undo);
}

void CrashingFileOps::forget_data(const Path& path) {
  undo_.remove_if([&](const auto& undo) { return undo->op == FileOp::write && undo->path == path; });
}

void CrashingFileOps::settle_rename(const FileCall& call) {
  for (const auto& undo : undo_) {
    const auto follow = [&](const Path& path) {
      return call.op == FileOp::rename ? renamed(path, call.path, call.other)
                                       : swapped(path, call.path, call.other);
    };
    undo->path = follow(undo->path);
    undo->other = follow(undo->other);
  }
}

void CrashingFileOps::after(const FileCall& call, bool changed) {
  if (!is_mutating(call.op)) return;
  if (call.op == FileOp::sync) forget_data(call.path);
  if (call.op == FileOp::sync_dir)
    undo_.remove_if([&](const auto& undo) {
      const Path& name = undo->op == FileOp::rename ? undo->other : undo->path;
      return undo->op != FileOp::write && parent_of(name) == call.path;
    });
  if (call.op == FileOp::remove) forget_data(call.path);
  if (call.op == FileOp::rename) forget_data(call.other);
  if (call.op == FileOp::rename || call.op == FileOp::exchange) settle_rename(call);
  if (pending_ != nullptr && changed) undo_.push_front(std::move(pending_));
  pending_.reset();
}

void CrashingFileOps::crash(const FileCall& call) {
  crashed_ = true;
  if (call.op == FileOp::write && loss_.data == CrashLoss::Data::kept)
    call.file->write_some(call.bytes.first(call.bytes.size() / 2), call.offset);
  if (loss_.data != CrashLoss::Data::kept) undo_data();
  if (loss_.names == CrashLoss::Names::lost) undo_names();
}

void CrashingFileOps::undo_data() {
  for (const auto& undo : undo_) {
    if (undo->op != FileOp::write || inner().kind(undo->path) != PathKind::file) continue;
    const std::string content = undo->taken_out_of(read_file(inner(), undo->path), loss_.data);
    inner().create(undo->path)->append(as_bytes(content));
  }
}

void CrashingFileOps::undo_names() {
  while (!undo_.empty()) {
    const std::unique_ptr<Undo> undo = std::move(undo_.front());
    undo_.pop_front();
    Path restored = undo->path;
    if (undo->op == FileOp::create || undo->op == FileOp::make_dir) {
      remove_tree(inner(), undo->path);
    } else if (undo->op == FileOp::rename) {
      inner().rename(undo->other, undo->path);
      settle_rename({.op = FileOp::rename, .path = undo->other, .other = undo->path});
      restored = undo->other;
    } else if (undo->op == FileOp::exchange) {
      inner().exchange(undo->path, undo->other);
      settle_rename({.op = FileOp::exchange, .path = undo->path, .other = undo->other});
    }
    // Nothing can be restored in a directory that this crash has removed with everything in it.
    if (inner().kind(parent_of(restored)) == PathKind::absent) continue;
    if (undo->replaced == PathKind::file) inner().create(restored)->append(as_bytes(undo->replaced_content));
    if (undo->replaced == PathKind::directory) inner().make_dir(restored);
  }
}

}  // namespace sc

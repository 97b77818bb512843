#include "common/storage/block_file.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include "common/storage/atomic_dir.h"
#include "common/storage/block_pump.h"

namespace sc {
namespace {

/// Writes and reads a page; the last system call's result.
std::int64_t move_a_page(File& file) {
  struct alignas(kBlockAlign) Page {
    std::array<std::byte, kBlockAlign> bytes{};
  };
  const auto page = std::make_unique<Page>();
  const std::int64_t written = file.write_some(page->bytes, Bytes(0));
  return written == kBlockAlign ? file.read_some(page->bytes, Bytes(0)) : written;
}

}  // namespace

void DiskTransfer::wait() {
  if (!outcome_.valid()) return;
  // Makes a new error, because several threads must not share a thrown object.
  if (const auto& error = outcome_.get().error)
    throw InputError(error->code(), error->where(), error->message(), error->fix());
}

bool DiskTransfer::done() const {
  return !outcome_.valid() || outcome_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::optional<DiskTransfer::Clock::time_point> DiskTransfer::ended_at() const {
  return outcome_.valid() && done() ? std::optional(outcome_.get().ended) : std::nullopt;
}

BlockFile::BlockFile(FileOps& ops, const Options& options, const std::vector<Bytes>& extents)
    : path_(options.path) {
  const std::int64_t block = options.block.value();
  if (block <= 0 || block % kBlockAlign != 0 || options.depth < 1)
    throw std::logic_error("BlockFile: bad options");
  std::size_t blocks = 0;
  for (const Bytes asked : extents) {
    const Bytes bytes(round_up(asked.value(), kBlockAlign));
    extents_.push_back({size_, bytes, blocks});
    size_ += bytes;
    blocks += static_cast<std::size_t>(ceil_div(bytes.value(), block));
  }
  file_ = open(ops);
  OpenedIo opened = open_block_io(options.engine, *file_, options.depth);
  engine_ = opened.engine;
  if (!opened.refusal.empty()) notes_.push_back(opened.refusal);
  std::unique_ptr<BlockIo> io = std::move(opened.io);
  if (options.wrap) io = options.wrap(std::move(io));
  if (options.mbps > 0) io = limit_rate(std::move(io), options.mbps);
  pump_ = std::make_unique<BlockPump>(ops, options, std::move(io), size_, blocks);
}

BlockFile::~BlockFile() = default;

std::unique_ptr<File> BlockFile::open(FileOps& ops) {
  try {
    auto file = create_unnamed(ops, path_);
    const Bytes free = ops.free_space(parent_of(path_)).bytes;
    if (free < size_) throw file_error(FileIntent::write, path_, "make a file of this size", ENOSPC);
    file->allocate(size_);
    go_direct(*file);
    return file;
  } catch (const InputError& error) {
    throw with_room(error, ExitCode::missing, ops, path_, size_);
  }
}

/// Uses O_DIRECT if both a write and a read work with it.
void BlockFile::go_direct(File& file) {
  bool direct = file.set_direct(true);
  std::int64_t res = move_a_page(file);
  if (direct && res == -EINVAL) {
    direct = false;
    file.set_direct(false);
    res = move_a_page(file);
  }
  if (res != kBlockAlign) {
    throw file_error(FileIntent::write, path_, "write and read its first 4096 bytes",
                     res < 0 ? static_cast<int>(-res) : EIO);
  }
  if (direct) return;
  notes_.push_back(
      fmt::format("{}: no O_DIRECT there: transfers go through the page cache, which takes memory",
                  parent_of(path_).string()));
}

DiskTransfer BlockFile::start(BlockRequest::Kind kind, std::size_t extent, std::span<std::byte> bytes) {
  Extent& at = extents_.at(extent);
  const bool aligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % kBlockAlign == 0;
  if (!aligned || static_cast<std::int64_t>(bytes.size()) != at.bytes.value()) {
    throw std::logic_error("BlockFile: memory of another size or alignment");
  }
  if (!at.last.done()) throw std::logic_error("BlockFile: the extent's last transfer has not ended");
  if (kind == BlockRequest::Kind::read && !at.written)
    throw std::logic_error("BlockFile: read before it was written");
  at.written = true;
  if (bytes.empty()) return {};
  auto state = std::make_shared<DiskTransfer::State>();
  state->kind = kind;
  state->offset = at.offset;
  state->first_block = at.first_block;
  state->bytes = bytes;
  at.last = DiskTransfer(state->outcome.get_future().share());
  pump_->add(std::move(state));
  return at.last;
}

DiskTransfer BlockFile::read(std::size_t extent, std::span<std::byte> into) {
  return start(BlockRequest::Kind::read, extent, into);
}

DiskTransfer BlockFile::write(std::size_t extent, std::span<const std::byte> from) {
  // A request has one type of memory for both kinds; that of a write is only read.
  return start(BlockRequest::Kind::write, extent, {const_cast<std::byte*>(from.data()), from.size()});
}

BlockFile::Counts BlockFile::counts() const { return pump_->counts(); }

}  // namespace sc

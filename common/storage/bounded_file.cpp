#include "common/storage/bounded_file.h"

#include <spdlog/fmt/fmt.h>

#include "common/input/json_text.h"

namespace sc {
namespace {

/// A string's bytes, to be filled.
std::span<std::byte> room_in(std::string& text) { return std::as_writable_bytes(std::span(text)); }

}  // namespace

std::string read_file_up_to(FileOps& ops, const Path& path, std::size_t most) {
  const auto file = ops.open_read(path);
  if (static_cast<std::size_t>(file->size().value()) > most) {
    throw InputError(ExitCode::data, path.string(), too_large(most),
                     "a file that a run of this program wrote");
  }
  std::string text(static_cast<std::size_t>(file->size().value()), '\0');
  text.resize(static_cast<std::size_t>(file->read_at(room_in(text), Bytes(0)).value()));
  return text;
}

void for_each_line(FileOps& ops, const Path& path, std::size_t most,
                   const std::function<void(std::string_view line, std::int64_t number)>& f) {
  const auto file = ops.open_read(path);
  std::string piece(std::size_t{1} << 16U, '\0'), pending;
  std::int64_t number = 1;
  Bytes at{0};
  while (true) {
    const Bytes got = file->read_at(room_in(piece), at);
    if (got == Bytes(0)) return;
    at += got;
    std::string_view rest = std::string_view(piece).substr(0, static_cast<std::size_t>(got.value()));
    for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos; ++number) {
      pending += rest.substr(0, end);
      rest.remove_prefix(end + 1);
      if (pending.size() > most) break;
      f(pending, number);
      pending.clear();
    }
    pending += rest;
    if (pending.size() > most) {
      throw InputError(ExitCode::data, fmt::format("{}:{}", path.string(), number), too_large(most),
                       "a file that a run of this program wrote");
    }
  }
}

}  // namespace sc

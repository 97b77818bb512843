#include "common/storage/bounded_file.h"

#include <spdlog/fmt/fmt.h>

#include "common/input/json_text.h"

namespace sc {

std::string read_file_up_to(FileOps& ops, const Path& path, std::size_t most) {
  const auto file = ops.open_read(path);
  const auto size = static_cast<std::size_t>(file->size().value());
  if (size > most)
    throw InputError(ExitCode::data, path.string(), too_large(most),
                     "a file that a run of this program wrote");
  return head_of(*file, size);
}

void for_each_line(FileOps& ops, const Path& path, std::size_t most,
                   const std::function<void(std::string_view line, std::int64_t number)>& f) {
  const auto file = ops.open_read(path);
  std::string piece(std::size_t{1} << 16U, '\0'), pending;
  std::int64_t number = 1;
  Bytes at{0};
  while (true) {
    const Bytes got = file->read_at(std::as_writable_bytes(std::span(piece)), at);
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

#include "common/data/corpus.h"

#include <spdlog/fmt/fmt.h>
#include <zlib.h>

#include "common/base/text.h"
#include "common/storage/atomic_dir.h"
#include "common/storage/mapped_file.h"

namespace sc {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, with gzip's header and trailer
constexpr std::size_t kChunk = std::size_t{1} << 18;

/// Frees zlib's memory on every way out.
struct Inflater {
  z_stream stream{};
  bool open = inflateInit2(&stream, kGzipWindow) == Z_OK;
  Inflater() = default;
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() {
    if (open) inflateEnd(&stream);
  }
};

[[noreturn]] void refuse_corpus(const Path& path, const std::string& what) {
  throw InputError(ExitCode::data, path.string(), what,
                   "restore the file: git checkout -- common/data/corpus");
}

}  // namespace

Path austen_archive() { return Path(STAGECRAFT_SOURCE_DIR) / "common/data/corpus/austen.txt.gz"; }

std::string unpack_gzip(std::string_view packed, const Path& path) {
  Inflater inflater;
  z_stream& stream = inflater.stream;
  if (!inflater.open) throw DeviceError("zlib: inflateInit2 failed");
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  std::string chunk(kChunk, '\0');
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    status = inflate(&stream, Z_NO_FLUSH);
    text.append(chunk, 0, chunk.size() - stream.avail_out);
  }
  if (status == Z_BUF_ERROR) refuse_corpus(path, fmt::format("cut off after {} bytes", packed.size()));
  if (status != Z_STREAM_END) {
    refuse_corpus(path, fmt::format("not gzip or damaged at byte {}: {}", stream.total_in,
                                    stream.msg != nullptr ? stream.msg : "unknown error"));
  }
  return text;
}

Path austen_text(FileOps& ops, const Path& cache) {
  Path text_path = cache / "austen.txt";
  if (ops.kind(text_path, FileIntent::write) == PathKind::file &&
      hex_sha256(MappedFile(text_path).text()) == kAustenSha256) {
    return text_path;
  }
  const Path archive = austen_archive();
  const std::string text = unpack_gzip(MappedFile(archive).text(), archive);
  const std::string sha256 = hex_sha256(text);
  if (sha256 != kAustenSha256) {
    refuse_corpus(archive,
                  fmt::format("unpacks to a text with sha256 {} instead of {}", sha256, kAustenSha256));
  }
  atomic_write_file(ops, text_path, text);
  return text_path;
}

}  // namespace sc

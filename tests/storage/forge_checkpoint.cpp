// Damages a checkpoint and makes the manifest's own sum right again, as anybody can: for tests of whole
// programs.
//   usage  forge_checkpoint DIR empty | deep | large | behind | int | none | older | steers
//     empty   rank 0's file has no byte, and the manifest a header of 8 for it
//     deep    100,000 lists within each other in "extra"
//     large   a manifest of 8 GiB, most of it a hole
//     behind  a zero byte and more behind the manifest's object
//     int     rank 0's file says that its first momentum is I32
//     none    it was trained on rows of 0 tokens
//     older   as written when evaluations were counted in micro-batches
//     steers  its learning rate is a text of 50,000 bytes with codes for the terminal
#include <cstring>
#include <iostream>

#include "common/storage/checkpoint/manifest.h"

namespace sc::checkpoint {
namespace {

constexpr std::size_t kHeadBytes = 29;  // of the manifest's first line, which holds the sum

class Forgery {
 public:
  explicit Forgery(Path dir) : dir_(std::move(dir)), text_(read_file(*ops_, dir_ / kManifestName)) {}

  void make(const std::string& what) {
    if (what == "empty") empty();
    if (what == "int") label_integers();
    if (what == "deep") {
      const std::string lists = std::string(100000, '[') + std::string(100000, ']');
      replace("\"extra\": {",
              "\"extra\": {\"a\": " + lists + (text_.find("\"extra\": {}") == std::string::npos ? "," : ""));
    }
    if (what == "none") set("batch.sequence", "0");
    if (what == "older") make_older();
    if (what == "steers") set("optim.lr", "\x1b[2J" + std::string(50000, 'x'));
    if (what == "behind") text_ += std::string(1, '\0') + "garbage";
    const std::string rest = text_.substr(kHeadBytes);
    put(kManifestName, "{\"xxh3\": \"" + hex_of(sum_of(as_bytes(rest))) + "\",\n" + rest);
    if (what == "large") std::filesystem::resize_file(dir_ / kManifestName, std::uintmax_t{1} << 33U);
  }

 private:
  void put(const std::string& name, std::string_view content) {
    ops_->create(dir_ / name)->append(as_bytes(content));
  }
  void replace(const std::string& from, const std::string& to) {
    const std::size_t at = text_.find(from);
    if (at == std::string::npos) throw std::runtime_error("the manifest has no " + from);
    text_.replace(at, from.size(), to);
  }
  void set(const std::string& key, const std::string& value) {
    Manifest manifest = manifest_of_text(text_, "the manifest");
    manifest.workload[key] = value;
    text_ = text_of(manifest);
  }
  void make_older() {
    Manifest manifest = manifest_of_text(text_, "the manifest");
    auto key = manifest.workload.extract("data.validation_rows");
    const int rows = std::stoi(key.mapped()), micro = std::stoi(manifest.workload.at("batch.micro"));
    if (rows % micro != 0) throw std::runtime_error("an older one had whole micro-batches");
    key.key() = "data.validation_batches";
    key.mapped() = std::to_string(rows / micro);
    manifest.workload.insert(std::move(key));
    text_ = text_of(manifest);
  }
  /// The manifest's entry of rank 0's file.
  void replace_sums(const FileSums& now) {
    Manifest manifest = manifest_of_text(text_, "the manifest");
    manifest.files[0] = now;
    text_ = text_of(manifest);
  }
  void empty() {
    const std::string name = file_name(0);
    put(name, "");
    replace_sums({name, 0, 8, sum_of(std::vector<std::byte>(8)), {}});
  }
  void label_integers() {
    FileSums sums = manifest_of_text(text_, "the manifest").files[0];
    std::string file = read_file(*ops_, dir_ / sums.name);
    const std::size_t dtype = file.find("\"F32\"", file.find("@momentum"));
    file.replace(dtype, 5, "\"I32\"");
    put(sums.name, file);
    sums.header_sum = sum_of(as_bytes(file).first(static_cast<std::size_t>(sums.header_bytes)));
    replace_sums(sums);
  }

  std::unique_ptr<FileOps> ops_ = posix_file_ops();
  Path dir_;
  std::string text_;
};

}  // namespace
}  // namespace sc::checkpoint

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  try {
    sc::checkpoint::Forgery(argv[1]).make(argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 70;
  }
}

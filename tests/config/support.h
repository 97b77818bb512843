// A lesson's table to test with, and the words of an InputError.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/check.h"
#include "common/config/field_table.h"

namespace sc {

struct Bucket {
  enum class Kind { tensor, unit, model, elements };
  Kind kind = Kind::unit;
  std::int64_t elements = 0;
  bool operator==(const Bucket&) const = default;
};

struct Options {
  Bucket bucket;
  bool overlap = true;
  std::int64_t verify_replicas = 10;
};

inline FieldTable<Options> options_table() {
  FieldTable<Options> table;
  const std::vector<std::pair<std::string, Bucket>> names = {
      {"tensor", {Bucket::Kind::tensor}}, {"unit", {Bucket::Kind::unit}}, {"model", {Bucket::Kind::model}}};
  table.add(
      {"bucket", "elements", "what one all-reduce carries"},
      choice_or_integer<Bucket>(
          names, 1,
          [](std::int64_t n) {
            return Bucket{Bucket::Kind::elements, n};
          },
          [](const Bucket& b) { return b.elements; }),
      [](auto& o) -> auto& { return o.bucket; });
  table.add(
      {"overlap", "", "all-reduce while backward still runs"}, on_off(),
      [](auto& o) -> auto& { return o.overlap; });
  table.add(
      {"verify_replicas", "steps", "compare the replicas every so many steps; 0 = never"}, integer(0),
      [](auto& o) -> auto& { return o.verify_replicas; });
  return table;
}

/// The refusal of `call`: exit code and the whole message, or "" if it refuses nothing.
template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

/// A file of this name in a directory of its own, gone with the object. Tests run in the sources' root, so
/// `path` is absolute; messages name it as it was given.
class TempFile {
 public:
  explicit TempFile(const std::string& content, const std::string& name = "w.json") {
    std::string pattern = (std::filesystem::temp_directory_path() / "sc_config_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    directory_ = pattern;
    path_ = directory_ + "/" + name;
    std::ofstream(path_, std::ios::binary) << content;
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// A message with this file's path shortened to its name.
  [[nodiscard]] std::string shorten(std::string message) const {
    const std::string prefix = directory_ + "/";
    for (auto at = message.find(prefix); at != std::string::npos; at = message.find(prefix))
      message.erase(at, prefix.size());
    return message;
  }

 private:
  std::string directory_, path_;
};

}  // namespace sc

// A directory that lives as long as a test, and the text of a caught InputError.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "common/storage/file_ops.h"

namespace sc::test {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "stagecraft_test_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + name);
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const Path& path() const { return path_; }
  Path operator/(const std::string& name) const { return path_ / name; }

 private:
  Path path_;
};

/// "<exit code>|<message>|<fix>" of the InputError that `call` throws; the path `dir`, if given, reads "DIR".
template <class Call>
std::string input_error(Call call, const std::string& dir = "") {
  try {
    call();
  } catch (const InputError& error) {
    std::string text = std::to_string(static_cast<int>(error.code())) + "|" + error.where() + ": " +
                       error.message() + "|" + error.fix();
    for (std::size_t at = 0; !dir.empty() && (at = text.find(dir, at)) != std::string::npos; at += 3) {
      text.replace(at, dir.size(), "DIR");
    }
    return text;
  }
  return "no InputError";
}

/// The text of input_error() without its fix.
inline std::string without_fix(const std::string& error) { return error.substr(0, error.rfind('|')); }

/// A test fixture with a temporary directory.
class InTempDir : public ::testing::Test {
 protected:
  explicit InTempDir(Syncing syncing = Syncing::skip) : ops_(posix_file_ops(syncing)) {}
  void put(const std::string& name, std::string_view content) {
    ops_->create(dir_ / name)->append(as_bytes(content));
  }
  template <class Call>
  std::string error_of(Call call) {
    return input_error(call, dir_.path().string());
  }

  TempDir dir_;
  std::unique_ptr<FileOps> ops_;
};

}  // namespace sc::test

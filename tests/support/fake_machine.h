// A folder with fake files of a machine (/proc, /sys), for functions that take the root folder `top`.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sc::test {

class FakeMachine {
 public:
  FakeMachine() : top_(::testing::TempDir() + "machine_" + std::to_string(::getpid())) {
    std::filesystem::remove_all(top_);
  }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;
  ~FakeMachine() {
    std::error_code ignored;
    std::filesystem::remove_all(top_, ignored);
  }
  void file(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(top_ + path).parent_path());
    std::ofstream(top_ + path) << text;
  }
  [[nodiscard]] const std::string& top() const { return top_; }

 private:
  std::string top_;
};

}  // namespace sc::test

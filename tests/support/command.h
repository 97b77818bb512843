// Runs a shell command and tells how it ended. Standard library only.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace sc::test {

struct Outcome {
  int code = -1;
  std::string text;  // stdout and stderr
  [[nodiscard]] bool has(const std::string& what) const { return text.find(what) != std::string::npos; }
};

inline Outcome run_command(const std::string& command) {
  Outcome outcome;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace sc::test

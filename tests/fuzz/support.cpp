#include "tests/fuzz/support.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#ifndef STAGECRAFT_FUZZ_REPLAY
// libstdc++'s headers ask for this function, std::filesystem::path::_List::type(_Type), in code that nobody
// calls but that the precompiled header brings, and the library does not export it.
extern "C" void _ZNSt10filesystem7__cxx114path5_List4typeENS1_5_TypeE() { std::abort(); }  // NOLINT
#endif

namespace sc::fuzz {
namespace {

struct SaidAtTheEnd : Counts {
  ~SaidAtTheEnd() {
    std::fprintf(stderr, "%lld taken, %lld refused\n", static_cast<long long>(taken),
                 static_cast<long long>(refused));
  }
} so_far;

struct Folder {
  Path path;
  Folder() {
    std::string name = "/dev/shm/stagecraft_fuzz_XXXXXX";
    require(::mkdtemp(name.data()) != nullptr, "no folder in /dev/shm");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

void count_taken() { ++so_far.taken; }

void count_refused(std::string_view message) {
  require(printable(message) == message, "a refusal that would steer a terminal");
  ++so_far.refused;
}

Counts counts() { return so_far; }

const Path& folder() {
  static const Folder the_folder;
  return the_folder.path;
}

Path file_of(std::string_view content, const std::string& name) {
  const Path path = folder() / name;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  require(file >= 0 && ::write(file, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
          "cannot write to /dev/shm");
  ::close(file);
  return path;
}

}  // namespace sc::fuzz

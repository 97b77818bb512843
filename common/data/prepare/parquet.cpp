#include "common/data/prepare/parquet.h"

#include <fcntl.h>
#include <spawn.h>
#include <spdlog/fmt/fmt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "common/base/check.h"
#include "common/base/handle.h"

namespace sc::prepare {
namespace {

static_assert(std::endian::native == std::endian::little, "frames have little-endian lengths");
constexpr const char* kSetup = "common/data/prepare/setup_parquet.sh";

struct CloseFile {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};

struct Frame {
  char kind = 'Z';
  std::string content;
};

/// Runs a program whose standard output is read here. The program ends at the latest when its pipe is closed.
class Child {
 public:
  Child(const std::vector<std::string>& command, const std::string& where) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw DeviceError("pipe2: " + std::generic_category().message(errno));
    }
    output_.reset(fdopen(ends[0], "rb"));
    if (!output_) throw DeviceError("fdopen: " + std::generic_category().message(errno));
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    const int error = posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
      pid_ = 0;
      throw InputError(ExitCode::missing, where,
                       fmt::format("cannot start {}: {}", command[0], std::generic_category().message(error)),
                       kSetup);
    }
  }

  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    output_.reset();
    if (pid_ > 0) (void)wait();
  }

  /// Reads one frame; false if the program ended before it was whole.
  bool read(Frame& frame) {
    std::uint64_t length = 0;
    return take(&frame.kind, 1) && take(&length, sizeof(length)) && take_content(frame.content, length);
  }
  /// Waits for the program's end; its exit code, or 128 + signal if a signal ended it.
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    constexpr int kSignalled = 128;
    return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
  }

 private:
  bool take(void* to, std::size_t size) { return std::fread(to, 1, size, output_.get()) == size; }
  /// Reads `length` bytes, in chunks, so that a wrong length reserves no memory for bytes that do not come.
  bool take_content(std::string& content, std::uint64_t length) {
    constexpr std::uint64_t kChunk = std::uint64_t{1} << 20U;
    content.clear();
    while (content.size() < length) {
      const std::size_t begin = content.size();
      content.resize(begin + std::min(kChunk, length - begin));
      if (!take(content.data() + begin, content.size() - begin)) return false;
    }
    return true;
  }

  UniqueHandle<std::FILE*, CloseFile> output_;
  pid_t pid_ = 0;
};

[[noreturn]] void refuse(const Frame& frame, const std::string& where) {
  const std::size_t line = std::min(frame.content.find('\n'), frame.content.size());
  const std::string fix = line < frame.content.size() ? frame.content.substr(line + 1) : "";
  throw InputError(frame.kind == 'M' ? ExitCode::missing : ExitCode::data, where,
                   frame.content.substr(0, line), fix);
}

}  // namespace

Path default_python() { return Path(STAGECRAFT_SOURCE_DIR) / ".deps/prepare/bin/python"; }

void read_frames(const std::vector<std::string>& command, const std::string& where, const UseDocument& use) {
  Child child(command, where);
  Frame frame;
  while (child.read(frame)) {
    if (frame.kind == 'D') {
      use(frame.content);
    } else if (frame.kind == 'Z') {
      return;
    } else {
      refuse(frame, where);
    }
  }
  throw InputError(ExitCode::data, where,
                   fmt::format("{} ended before the texts did (exit code {})", command[0], child.wait()),
                   std::string("see its message above; if pyarrow is damaged, ") + kSetup);
}

void read_parquet(const Path& file, const std::string& column, const Path& python, const UseDocument& use) {
  if (posix_file_ops()->kind(python) != PathKind::file) {
    throw InputError(ExitCode::missing, file.string(),
                     fmt::format("parquet needs Python with pyarrow, and {} is not there", python.string()),
                     kSetup);
  }
  const Path script = Path(STAGECRAFT_SOURCE_DIR) / "common/data/prepare/parquet_text.py";
  read_frames({python.string(), script.string(), file.string(), column}, file.string(), use);
}

}  // namespace sc::prepare

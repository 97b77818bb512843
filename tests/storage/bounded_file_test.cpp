// Tests reading files of unknown origin: files cut off while mapped, large files, long lines.
#include "common/storage/bounded_file.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "common/storage/mapped_file.h"
#include "tests/storage/temp_dir.h"

namespace sc {
namespace {

using FromElsewhere = test::InTempDir;

// Reading a mapped page that the file no longer has raises SIGBUS; it must become an error that names the
// file.
TEST_F(FromElsewhere, AMappedFileThatIsCutOffIsNamed) {
  put("a", std::string(100000, 'x'));
  put("b", std::string(100000, 'x'));
  const auto read_after_cut = [&](const char* cut, const char* read) {
    const MappedFile a(dir_ / "a"), gone(dir_ / "b");
    const MappedFile b = MappedFile(dir_ / "b");
    std::filesystem::resize_file(dir_ / cut, 10);
    volatile char last = (read == std::string("a") ? a : b).text()[99999];
    (void)last;
  };
  EXPECT_EXIT(read_after_cut("a", "a"), ::testing::ExitedWithCode(65),
              "^error: .*/a: was cut off while it was read\n  fix: let the program that writes it end");
  put("a", std::string(100000, 'x'));
  EXPECT_EXIT(read_after_cut("b", "b"), ::testing::ExitedWithCode(65), "^error: .*/b: was cut off");
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they have a handler of their own, which exits
  // A SIGBUS with another cause still kills the process, even after a file was mapped.
  EXPECT_EXIT((MappedFile(dir_ / "a"), ::raise(SIGBUS)), ::testing::KilledBySignal(SIGBUS), "");
#endif
}

TEST_F(FromElsewhere, LinesComeInPiecesOfTheFile) {
  const std::string long_line(100000, 'l');  // longer than a piece
  put("a", "first\n\n" + long_line + "\nnot ended");
  std::vector<std::string> lines;
  const auto read = [&](std::size_t most) {
    lines.clear();
    for_each_line(*ops_, dir_ / "a", most, [&](std::string_view line, std::int64_t number) {
      lines.emplace_back(line);
      EXPECT_EQ(number, static_cast<std::int64_t>(lines.size()));
    });
  };
  read(100000);
  EXPECT_EQ(lines, (std::vector<std::string>{"first", "", long_line}));
  EXPECT_EQ(error_of([&] { read(50000); }).substr(0, 22), "65|DIR/a:3: is larger ");
  EXPECT_EQ(lines.size(), 2U);
  EXPECT_EQ(read_file_up_to(*ops_, dir_ / "a", 100100).size(), 100017U);
  EXPECT_EQ(error_of([&] { (void)read_file_up_to(*ops_, dir_ / "a", 100016); }).substr(0, 20),
            "65|DIR/a: is larger ");
}

}  // namespace
}  // namespace sc

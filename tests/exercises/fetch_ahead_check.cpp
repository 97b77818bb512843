#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <random>
#include <vector>

#include "lessons/06_infinity/exercise/fetch_ahead.h"
#include "tests/exercises/check.h"

namespace sc::exercise {
namespace {

/// The milliseconds that the parts of one piece take.
struct Pace {
  double read, write, adam;
  /// True: the disk moves one piece after the other. False: each takes up to twice as long, and none waits
  /// for another.
  bool in_order = true;
};

/// A disk and its window, with a clock of their own. Nothing sleeps, and a wait that would never end is
/// noticed at once.
class MadeUpDisk : public PiecesOnDisk {
 public:
  MadeUpDisk(int pieces, int buffers, const Pace& pace, unsigned seed)
      : pace_(pace), random_(seed), pieces_(pieces), window_(static_cast<std::size_t>(buffers)) {}
  int pieces() const override { return pieces_; }
  int buffers() const override { return static_cast<int>(window_.size()); }

  void read(std::int64_t number, int buffer) override {
    const std::string what = where() + fmt::format("number {} is read into buffer {}", number, buffer);
    Buffer& into = buffer_at(what, buffer);
    require(number == next_read_, what + fmt::format(", it is number {}'s turn", next_read_));
    require(into.number < 0 || into.written.begun,
            what + fmt::format(", in which number {} has not been written", into.number));
    require(into.written.end <= now_,
            what + fmt::format(" while number {} is being written out of it", into.number));
    for (const Buffer& other : window_)
      require(other.number < 0 || other.number % pieces() != number % pieces() ||
                  (other.written.begun && other.written.end <= now_),
              what + fmt::format(" while number {}, the same piece, has not been written", other.number));
    into = {number, begins(pace_.read), {}, false};
    ++next_read_;
  }
  void wait_read(std::int64_t number) override {
    const Buffer* buffer = of(number);
    require(buffer != nullptr,
            where() + fmt::format("it waits for the read of number {}, which is in no buffer", number));
    now_ = std::max(now_, buffer->read.end);
  }
  void update(std::int64_t number, int buffer) override {
    const std::string what = where() + fmt::format("number {} is updated", number);
    Buffer& at = buffer_at(what, buffer);
    require(number == next_update_, what + fmt::format(", it is number {}'s turn", next_update_));
    require(at.number == number, what + fmt::format(" in buffer {}, where it is not", buffer));
    require(at.read.end <= now_, what + " while it is being read");
    now_ += takes(pace_.adam);
    at.updated = true;
    ++next_update_;
  }
  void write(std::int64_t number, int buffer) override {
    const std::string what = where() + fmt::format("number {} is written", number);
    Buffer& from = buffer_at(what, buffer);
    require(from.number == number, what + fmt::format(" out of buffer {}, where it is not", buffer));
    require(from.updated, what + " before it is updated");
    require(!from.written.begun, what + " a second time");
    from.written = begins(pace_.write);
    last_write_ = std::max(last_write_, from.written.end);
    ++writes_;
  }
  void wait_written(std::int64_t number) override {
    if (number >= 0 && number < next_update_ && of(number) == nullptr) return;  // long ago
    const Buffer* buffer = of(number);
    require(
        buffer != nullptr && buffer->written.begun,
        where() + fmt::format("it waits for the write of number {}, which has not begun: nobody can go on",
                              number));
    now_ = std::max(now_, buffer->written.end);
  }

  void finish(std::int64_t updates) const {
    const std::int64_t all = updates * pieces();
    require(next_read_ == all && writes_ == all,
            where() + fmt::format("{} pieces were read and {} written, of {}", next_read_, writes_, all));
    require(last_write_ <= now_, where() + "it returned while the disk was still writing");
  }
  [[nodiscard]] double now() const { return now_; }
  [[nodiscard]] std::string where() const {
    return fmt::format("{} buffers, {} pieces{}: ", buffers(), pieces(),
                       pace_.in_order ? "" : ", transfers that overtake others");
  }

 private:
  struct Transfer {
    bool begun = false;
    double end = 0;
  };
  struct Buffer {
    std::int64_t number = -1;  // what is in it, or on its way
    Transfer read, written;
    bool updated = false;
  };

  double takes(double mean) {
    return pace_.in_order ? mean : mean * std::uniform_real_distribution<double>(0, 2)(random_);
  }
  Transfer begins(double mean) {
    const double from = pace_.in_order ? std::max(now_, free_) : now_;
    free_ = from + takes(mean);
    return {true, free_};
  }
  Buffer& buffer_at(const std::string& what, int buffer) {
    require(buffer >= 0 && buffer < buffers(),
            what + fmt::format(": there are buffers 0 to {}", buffers() - 1));
    return window_[static_cast<std::size_t>(buffer)];
  }
  [[nodiscard]] const Buffer* of(std::int64_t number) const {
    const auto at = std::ranges::find(window_, number, &Buffer::number);
    return at == window_.end() || number < 0 ? nullptr : &*at;
  }

  const Pace pace_;
  std::mt19937 random_;
  const int pieces_;
  std::vector<Buffer> window_;
  double now_ = 0, free_ = 0, last_write_ = 0;
  std::int64_t next_read_ = 0, next_update_ = 0, writes_ = 0;
};

constexpr std::int64_t kUpdates = 5;
constexpr Pace kAlike{1, 1, 2};

/// Runs the learner's code over a window; returns how many milliseconds it takes.
double check_window(int pieces, int buffers, const Pace& pace, unsigned seed) {
  MadeUpDisk disk(pieces, buffers, pace, seed);
  update_through_window(disk, kUpdates);
  disk.finish(kUpdates);
  return disk.now();
}

// Compares a piece's time with the lesson's: with one buffer the sum of both times, with two at most that,
// from three on the longer of the two.
void check_time(int pieces, int buffers, const Pace& pace) {
  const double takes = check_window(pieces, buffers, pace, 1), disk = pace.read + pace.write,
               whole = buffers < 3 ? disk + pace.adam : std::max(disk, pace.adam),
               possible =
                   static_cast<double>(kUpdates * pieces) * whole + (buffers < 3 ? 0 : disk + pace.adam);
  require(
      takes <= possible,
      fmt::format(
          "{} buffers, {} pieces, a disk of {:g} ms per piece and AdamW of {:g}: {} updates take {:.0f} ms; "
          "{:.0f} are possible",
          buffers, pieces, disk, pace.adam, kUpdates, takes, possible));
}

void check_windows(int pieces, int buffers) {
  constexpr Pace kSlowDisk{2, 2, 1}, kSlowHost{1, 1, 6}, kAnyOrder{1, 1, 1, false};
  for (unsigned seed = 1; seed <= 20; ++seed) check_window(pieces, buffers, kAnyOrder, seed);
  for (const Pace& pace : {kSlowDisk, kSlowHost, kAlike}) check_time(pieces, buffers, pace);
}

std::string check() {
  for (const int pieces : {8, 3, 5})
    for (const int buffers : {3, 1, 2, 4})
      if (buffers <= pieces) check_windows(pieces, buffers);
  return fmt::format(
      "every piece is read and written once per update, in any order in which the disk answers; 8 pieces {} "
      "times, where the disk "
      "takes 2 ms and AdamW 2, take {:.0f} ms with one buffer, {:.0f} with two and {:.0f} with three",
      kUpdates, check_window(8, 1, kAlike, 1), check_window(8, 2, kAlike, 1), check_window(8, 3, kAlike, 1));
}

}  // namespace

const Exercise kExercise{
    "fetch_ahead",
    "number k takes buffer k modulo buffers(). While k is updated the next ones are read and k - 1 is "
    "written: how many may be read "
    "before number k is updated, if nobody is to wait for the write that has just begun?",
    check};

}  // namespace sc::exercise

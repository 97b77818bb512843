#include "common/records/progress.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "common/base/text.h"
#include "common/watch/launch.h"

namespace sc {
namespace {

constexpr std::size_t kWindow = 20;  // steps over which rates are averaged

std::string rate(double tokens_per_second) {
  if (tokens_per_second < 1e3) return fmt::format("{:.0f}", tokens_per_second);
  if (tokens_per_second < 1e6) return fmt::format("{:.1f}k", tokens_per_second / 1e3);
  return fmt::format("{:.2f}M", tokens_per_second / 1e6);
}

std::string bar_of(std::int64_t done, std::int64_t total, Look look) {
  constexpr std::int64_t kCells = 20;
  const std::int64_t full = std::min(kCells, kCells * done / std::max<std::int64_t>(1, total));
  return bar(full, kCells - full, look);
}

}  // namespace

bool on_terminal() {
  const Environment variable = process_environment();
  if (const std::optional<std::string> said = variable("STAGECRAFT_TERMINAL")) return *said == "1";
  return !detect_launch(variable).launched() && ::isatty(STDOUT_FILENO) == 1;
}

Look look_here() { return look_of(on_terminal(), process_environment()); }

const char* fresh_line() { return on_terminal() ? "\n" : ""; }

Progress::Progress(std::ostream& out, std::function<double()> clock, ProgressOptions options)
    : out_(out), clock_(std::move(clock)), options_(std::move(options)) {}

Progress::~Progress() { finish(); }

std::string Progress::line() const {
  double seconds = 0, waited = 0, tokens = 0;
  for (const StepRecord& s : last_) {
    seconds += s.seconds;
    waited += s.waited_seconds;
    tokens += static_cast<double>(s.tokens);
  }
  const StepRecord& now = last_.back();
  const auto left = static_cast<double>(std::max<std::int64_t>(0, options_.total_steps - now.step - 1));
  const double seconds_left = left * seconds / static_cast<double>(last_.size());
  const std::string total = std::to_string(options_.total_steps);
  const bool drawn = options_.terminal && options_.bar;
  std::string text =
      drawn ? fmt::format("  {:>{}}/{} [{}] loss {:.2f}", now.step + 1, total.size(), total,
                          bar_of(now.step + 1, options_.total_steps, *options_.bar), now.loss)
            : fmt::format("step {:>{}}/{}  loss {:.4f}", now.step + 1, total.size(), total, now.loss);
  if (seconds <= 0) return text;
  text += fmt::format("  {} tok/s", rate(tokens / seconds));
  const std::optional<double> mfu = options_.flops ? options_.flops->mfu(tokens / seconds) : std::nullopt;
  if (mfu) text += fmt::format("  MFU {:.0f} %", 100 * *mfu);
  const std::string remains = human_seconds(seconds_left);
  return text + (drawn ? fmt::format("  waiting {:.0f} %  {} left", 100 * waited / seconds, remains)
                       : fmt::format("  waiting {:>2.0f} %  left {}", 100 * waited / seconds, remains));
}

void Progress::draw(const std::string& text) {
  // Blanks overwrite the rest of a longer line.
  out_ << '\r' << text << std::string(width_ > text.size() ? width_ - text.size() : 0, ' ') << std::flush;
  width_ = text.size();
}

void Progress::step(const StepRecord& step) {
  last_.push_back(step);
  if (last_.size() > kWindow) last_.pop_front();
  const double now = clock_();
  const bool last = step.step + 1 >= options_.total_steps;
  const double every = options_.terminal ? 0.1 : 2.0;
  if (options_.quiet || (printed_at_ && !last && now - *printed_at_ < every)) return;
  printed_at_ = now;
  if (options_.terminal) return draw(line());
  out_ << line() << std::endl;
}

void Progress::note(const std::string& text) {
  if (width_ > 0) draw(""), out_ << '\r';
  out_ << text << std::endl;
  width_ = 0;
  if (options_.terminal && !options_.quiet && !last_.empty()) draw(line());
}

void Progress::finish() {
  if (width_ > 0) out_ << std::endl;
  width_ = 0;
}

}  // namespace sc

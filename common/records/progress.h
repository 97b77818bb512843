// The line that says how a run is going. No torch.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "common/records/record.h"
#include "common/records/screen.h"

namespace sc {

struct ProgressOptions {
  std::int64_t total_steps = 0;
  bool quiet = false;     // prints notes and nothing else
  bool terminal = false;  // one line, redrawn ten times a second; otherwise plain lines: the first step, one
                          // every two seconds of the clock, the last step
  std::optional<Look> bar = {};          // the redrawn line begins with a bar that looks so
  std::optional<ModelFlops> flops = {};  // on GPUs
};

/// Whether a person looks on: run.sh says so (STAGECRAFT_TERMINAL), since under mpirun every rank's stdout is
/// a pseudo-terminal, whatever lies behind it; without run.sh and any launcher: whether stdout is a terminal.
bool on_terminal();
/// What it shows.
Look look_here();
/// What text that somebody else prints begins with: a redrawn line may stand there.
const char* fresh_line();

/// "step  12/200  loss 2.5821  52.0k tok/s  waiting  8 %  left 1 min 05 s", with "MFU 41 %" where a GPU's
/// peak is known; with a bar "  12/200 [#-------------------] loss 2.58  52.0k tok/s  waiting 8 %  1 min 05 s
///                              left".
/// Rates are means over the last steps (at most 20), so that a slow start is forgotten. Only
/// one rank has one.
class Progress {
 public:
  /// `clock` gives seconds from any origin. `out` and what `clock` refers to outlive the object.
  Progress(std::ostream& out, std::function<double()> clock, ProgressOptions options);
  /// Ends a redrawn line.
  ~Progress();
  Progress(const Progress&) = delete;

  void step(const StepRecord& step);
  /// A line of its own ("validation loss 2.31"), which the redrawn line does not overwrite. Printed even if
  /// quiet.
  void note(const std::string& text);
  /// After the last step: the redrawn line stays as it is, and the cursor goes to the next. Idempotent.
  void finish();

 private:
  [[nodiscard]] std::string line() const;
  void draw(const std::string& text);

  std::ostream& out_;
  std::function<double()> clock_;
  ProgressOptions options_;
  std::deque<StepRecord> last_;
  std::optional<double> printed_at_;  // by the clock
  std::size_t width_ = 0;             // characters of the redrawn line that stands there; 0: none
};

}  // namespace sc

// The line that shows how a run is going. No torch.
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
  bool quiet = false;  // print notes and nothing else
  // True: one line, redrawn ten times a second. False: plain lines for the first step, every two seconds, and
  // the last step.
  bool terminal = false;
  std::optional<Look> bar = {};          // how the bar at the redrawn line's beginning looks; empty: no bar
  std::optional<ModelFlops> flops = {};  // on GPUs
};

/// Whether a person is watching. run.sh says so (STAGECRAFT_TERMINAL), because under mpirun every rank's
/// stdout is a pseudo-terminal. Without run.sh and any launcher: whether stdout is a terminal.
bool on_terminal();
/// How text looks on this process's output.
Look look_here();
/// The prefix of text that anyone else prints, because a redrawn line may stand there.
const char* fresh_line();

/// The line "step  12/200  loss 2.5821  52.0k tok/s  waiting  8 %  left 1 min 05 s", with "MFU 41 %" if a
/// GPU's peak is known; with a bar
///   "  12/200 [#-------------------] loss 2.58  52.0k tok/s  waiting 8 %  1 min 05 s left".
/// Rates are means over the last steps (at most 20), so that a slow start is forgotten. One rank of a run
/// shows it.
class Progress {
 public:
  /// `clock` returns seconds from any origin. `out` and what `clock` refers to must outlive this object.
  Progress(std::ostream& out, std::function<double()> clock, ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;

  void step(const StepRecord& step);
  /// Prints a line ("validation loss 2.31") that the redrawn line does not overwrite. Also printed if quiet.
  void note(const std::string& text);
  /// Called after the last step: the redrawn line stays, and the cursor goes to the next line. Idempotent.
  void finish();

 private:
  [[nodiscard]] std::string line() const;
  void draw(const std::string& text);

  std::ostream& out_;
  std::function<double()> clock_;
  ProgressOptions options_;
  std::deque<StepRecord> last_;
  std::optional<double> printed_at_;  // by the clock
  std::size_t width_ = 0;             // characters of the redrawn line; 0: there is none
};

}  // namespace sc

// What `choose` prints: as tables, or as JSON for tests/benchmarks/choosing.py.
#pragma once

#include "options.h"
#include "search.h"

namespace sc::choose {

std::string report(const Options& options, const Measured& measured, const std::vector<Row>& rows);
/// The report as JSON. `rows` are the best of each kind.
std::string report_json(const Options& options, const Measured& measured, const std::vector<Row>& rows);

/// A timed step and its prediction on the machine that it ran on, with rates that follow from all other steps
/// (AdamW's on the host: from a run that is none of them).
struct Checked {
  MeasuredStep step;
  double predicted = 0;  // seconds
  [[nodiscard]] double error() const { return predicted / step.seconds - 1; }
};
std::vector<Checked> check(const Measured& measured);
/// The predictions of steps that will be timed one day.
std::vector<Checked> predict_ahead(const Measured& measured);
std::string check_report(const std::vector<Checked>& checked, const std::vector<Checked>& ahead);
std::string check_json(const std::vector<Checked>& checked, const std::vector<Checked>& ahead,
                       const Measured& measured);

}  // namespace sc::choose

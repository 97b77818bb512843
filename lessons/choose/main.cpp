// choose: which lessons fit on a machine, and what a step would take (choose --help).
#include <iostream>

#include "common/base/check.h"
#include "common/base/message.h"
#include "report.h"

namespace {

using namespace sc::choose;  // NOLINT

constexpr const char* kMeasured = "lessons/choose/measured.json";

void refuse_nothing_fits(const Options& options, const Measured& measured) {
  std::string fixes;
  for (const std::string& fix : nearest_that_works(options.machine, measured, options.workload))
    fixes += (fixes.empty() ? "" : "\n       ") + fix;
  throw sc::InputError(sc::ExitCode::missing, options.workload_file, "no lesson fits on this machine",
                       fixes.empty() ? "a smaller model" : fixes);
}

int run(int argc, char** argv) {
  const auto options = parse_options(argc, argv);
  if (!options) {
    std::cout << help_text();
    return 0;
  }
  const Measured measured = Measured::read(kMeasured);
  if (options->check) {
    const std::vector<Checked> checked = check(measured), ahead = predict_ahead(measured);
    std::cout << (options->json ? check_json(checked, ahead, measured) : check_report(checked, ahead));
    return 0;
  }
  const std::vector<Row> rows = search(options->machine, measured, options->workload);
  std::cout << (options->json ? report_json(*options, measured, rows) : report(*options, measured, rows))
            << std::flush;
  if (best(rows) == nullptr) refuse_nothing_fits(*options, measured);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const sc::InputError& error) {
    std::cout.flush();
    sc::say_error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    sc::say_error(error.what());
    return 1;
  }
}

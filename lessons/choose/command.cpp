#include "command.h"

#include "common/base/check.h"
#include "report.h"

namespace sc::choose {
namespace {

void refuse_nothing_fits(const Options& options, const Measured& measured) {
  std::string fixes;
  for (const std::string& fix : nearest_that_works(options.machine, measured, options.workload))
    fixes += (fixes.empty() ? "" : "\n       ") + fix;
  throw InputError(ExitCode::missing, options.workload_file, "no lesson fits on this machine",
                   fixes.empty() ? "a smaller model" : fixes);
}

}  // namespace

int run_command(int argc, const char* const* argv, const std::function<Measured()>& read_measured,
                std::ostream& out) {
  const auto options = parse_options(argc, argv);
  if (!options) {
    out << help_text();
    return 0;
  }
  const Measured measured = read_measured();
  if (options->check) {
    const std::vector<Checked> checked = check(measured), ahead = predict_ahead(measured);
    out << (options->json ? check_json(checked, ahead, measured) : check_report(checked, ahead));
    return 0;
  }
  const std::vector<Row> rows = search(options->machine, measured, options->workload);
  out << (options->json ? report_json(*options, measured, rows) : report(*options, measured, rows))
      << std::flush;
  if (best(rows) == nullptr) refuse_nothing_fits(*options, measured);
  return 0;
}

}  // namespace sc::choose

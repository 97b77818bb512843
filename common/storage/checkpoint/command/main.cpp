// checkpoint: shows, checks, compares and exports checkpoints (checkpoint --help).
#include <csignal>
#include <iostream>

#include "common/base/check.h"
#include "common/base/message.h"
#include "common/storage/checkpoint/command/command.h"

namespace {

int run(int argc, char** argv) {
  const auto options = sc::checkpoint::parse_options(argc, argv);
  if (!options) std::cout << sc::checkpoint::help_text();
  const int code = options ? sc::checkpoint::run(*sc::posix_file_ops(), *options, std::cout) : 0;
  if (std::cout.flush()) return code;
  throw sc::InputError(sc::ExitCode::cannot_write, "standard output", "cannot be written",
                       "check the space left where it goes");
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // writing past `ulimit -f` then fails with an error instead
  std::cout << std::unitbuf;   // results found so far come before an error message
  // A failure ends with 70, because 1 means that diff found differences.
  return sc::exit_code_of([&] { return run(argc, argv); }, 70);
}

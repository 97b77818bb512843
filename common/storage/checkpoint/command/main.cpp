// checkpoint: shows, checks, compares and exports checkpoints (checkpoint --help).
#include <csignal>
#include <iostream>

#include "common/base/check.h"
#include "common/base/message.h"
#include "common/storage/checkpoint/command/command.h"

namespace {

int fail(const sc::InputError& error) {
  std::cout.flush();
  sc::say_error(error.what());
  return static_cast<int>(error.code());
}

int run(int argc, char** argv) {
  const auto options = sc::checkpoint::parse_options(argc, argv);
  if (!options) {
    std::cout << sc::checkpoint::help_text();
    return 0;
  }
  const auto ops = sc::posix_file_ops();
  return sc::checkpoint::run(*ops, *options, std::cout);
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // a file past ulimit -f is an error of its write
  try {
    const int code = run(argc, argv);
    if (std::cout.flush()) return code;
    return fail({sc::ExitCode::cannot_write, "standard output", "cannot be written",
                 "check the space left where it goes"});
  } catch (const sc::InputError& error) {
    return fail(error);
  } catch (const std::exception& error) {
    sc::say_error(error.what());
    return 70;  // 1 means that diff found differences
  }
}

// prepare: any text as a token file (prepare --help).
#include <csignal>
#include <iostream>

#include "common/base/check.h"
#include "common/base/message.h"
#include "common/data/prepare/options.h"
#include "common/data/prepare/prepare.h"

namespace {

void print_error(const sc::InputError& error) { sc::say_error(error.what()); }

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // a file past ulimit -f is an error of its write
  try {
    const auto options = sc::prepare::parse_options(argc, argv);
    if (!options) {
      std::cout << sc::prepare::help_text();
      return 0;
    }
    const auto ops = sc::posix_file_ops();
    sc::prepare::run(*ops, *options, std::cout);
    return 0;
  } catch (const sc::InputError& error) {
    print_error(error);
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    sc::say_error(error.what());
    return 1;
  }
}

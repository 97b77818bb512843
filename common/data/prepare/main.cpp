// prepare: turns any text into a token file (prepare --help).
#include <csignal>
#include <iostream>

#include "common/base/message.h"
#include "common/data/prepare/options.h"
#include "common/data/prepare/prepare.h"

int main(int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // writing past `ulimit -f` then fails with an error instead
  const auto run = [&] {
    if (const auto options = sc::prepare::parse_options(argc, argv))
      sc::prepare::run(*sc::posix_file_ops(), *options, std::cout);
    else
      std::cout << sc::prepare::help_text();
    return 0;
  };
  return sc::exit_code_of(run, 1);
}

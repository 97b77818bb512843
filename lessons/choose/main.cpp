// choose: which lessons fit on a machine, and what a step would take (choose --help).
#include <iostream>

#include "command.h"
#include "common/base/message.h"

int main(int argc, char** argv) {
  std::cout << std::unitbuf;  // what was found stands before an error
  const auto measured = [] { return sc::choose::Measured::read(sc::choose::kMeasured); };
  return sc::exit_code_of([&] { return sc::choose::run_command(argc, argv, measured, std::cout); }, 1);
}

// choose: which lessons fit on a machine, and what a step would take (choose --help).
#include <iostream>

#include "command.h"
#include "common/base/check.h"
#include "common/base/message.h"

int main(int argc, char** argv) {
  try {
    return sc::choose::run_command(
        argc, argv, [] { return sc::choose::Measured::read(sc::choose::kMeasured); }, std::cout);
  } catch (const sc::InputError& error) {
    std::cout.flush();
    sc::say_error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    sc::say_error(error.what());
    return 1;
  }
}

#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "pipedream/command/command.h"

int main(int argc, char** argv) {
  const bool colour = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  const int code = sc::pipedream::run_command({argv, argv + argc}, {std::cout, std::cerr, colour});
  std::cout.flush();
  if (code == 0 && !std::cout) return 73;  // a full disk or a closed pipe
  return code;
}

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

#include "pipedream/command/command.h"
#include "pipedream/error.h"

int main(int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // writing past `ulimit -f` then fails with an error instead
  const bool colour = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  const int code = sc::pipedream::run_command({argv, argv + argc}, {std::cout, std::cerr, colour});
  std::cout.flush();
  if (code != 0 || std::cout) return code;
  std::cerr << "error: the output cannot be written\n  fix: check the space left where it goes\n";
  return static_cast<int>(sc::pipedream::ExitCode::cannot_write);
}

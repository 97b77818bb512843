#include "common/watch/process_alive.h"

#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>

namespace sc {

bool process_alive(std::int64_t pid) {
  if (::kill(static_cast<pid_t>(pid), 0) != 0) return errno == EPERM;
  // A zombie still accepts kill(pid, 0). Its state follows the name, which stands in parentheses and may
  // contain anything.
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const std::size_t bracket = stat.rfind(')');
  if (bracket == std::string::npos || bracket + 2 >= stat.size()) return true;  // no /proc: trust kill
  return stat[bracket + 2] != 'Z' && stat[bracket + 2] != 'X';
}

}  // namespace sc

#include "common/base/message.h"

#include <unistd.h>

#include <cerrno>

#include "common/base/check.h"
#include "common/input/printable.h"

namespace sc {

void say_error(const std::string& text) noexcept {
  const std::string line = "error: " + shown_message(text) + "\n";
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (n < 0 && errno != EINTR) return;  // nobody reads stderr
    if (n > 0) done += static_cast<std::size_t>(n);
  }
}

int exit_code_of(const std::function<int()>& run, int otherwise) noexcept {
  try {
    return run();
  } catch (const InputError& error) {
    say_error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    say_error(error.what());
    return otherwise;
  }
}

}  // namespace sc

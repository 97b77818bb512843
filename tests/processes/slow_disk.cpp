// A library that a test preloads to make a disk slow or silent: SLOW_DISK="PART CALL MS" delays each `pwrite`
// or `fsync` of a file whose path contains PART by MS milliseconds.
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

void delay(const char* call, int file) {
  const char* asked = std::getenv("SLOW_DISK");
  std::istringstream in(asked == nullptr ? "" : asked);
  std::string part, slow;
  unsigned milliseconds = 0;
  if (!(in >> part >> slow >> milliseconds) || slow != call) return;
  char path[PATH_MAX + 1] = {};
  if (::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, PATH_MAX) < 0) return;
  if (std::strstr(path, part.c_str()) != nullptr) ::usleep(milliseconds * 1000);
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int fsync(int file) {
  delay("fsync", file);
  return next<int(int)>("fsync")(file);
}

extern "C" ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  delay("pwrite", file);
  return next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(file, bytes, size, offset);
}

extern "C" ssize_t pwrite64(int file, const void* bytes, size_t size, off64_t offset) {
  delay("pwrite", file);
  return next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64")(file, bytes, size, offset);
}

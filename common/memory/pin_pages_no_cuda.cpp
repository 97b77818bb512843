#include "common/base/check.h"
#include "common/memory/pin_pages.h"

namespace sc {

void pin_pages(void* /*memory*/, std::size_t /*bytes*/) {
  throw DeviceError("this build has no GPU code to pin memory with");
}

void unpin_pages(void* /*memory*/) noexcept {}

}  // namespace sc

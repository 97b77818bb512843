#include "common/memory/host_pages.h"

#include <ATen/Parallel.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/memory/pin_pages.h"

namespace sc {

std::shared_ptr<void> host_pages(Bytes bytes, bool pinned) {
  const std::int64_t page = ::sysconf(_SC_PAGE_SIZE), pages = ceil_div(bytes.value(), page);
  const auto size = static_cast<std::size_t>(pages * page);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, size, MADV_HUGEPAGE);  // only a hint: small pages work as well
  auto* first = static_cast<volatile char*>(memory);
  at::parallel_for(0, pages, 512, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) first[i * page] = 0;
  });
  try {
    if (pinned) pin_pages(memory, size);
  } catch (const DeviceError& error) {
    pinned = false;
    spdlog::warn("{} of the host's memory are not pinned: copies between it and the GPU are slower ({})",
                 human_bytes(bytes), error.what());
  }
  return {memory, [size, pinned](void* p) {
            if (pinned) unpin_pages(p);
            ::munmap(p, size);
          }};
}

}  // namespace sc

// Large, long-lived host memory in whole pages.
#pragma once

#include <memory>

#include "common/base/types.h"

namespace sc {

/// At least `bytes` bytes of zeros in 2 MiB pages where the system gives them (MADV_HUGEPAGE). All of
/// LibTorch's intra-op threads touch the pages, because a page costs the kernel time at its first use. Only
/// the last page is partly unused; LibTorch's own pinned blocks are rounded up to a power of two.
///   pinned  CUDA builds: registered with the driver, so that a GPU copies to and from them by itself. If the
///           driver refuses, a line on stderr says so and the pages stay unpinned: copies are slower then.
///   Errors  std::bad_alloc.
std::shared_ptr<void> host_pages(Bytes bytes, bool pinned);

}  // namespace sc

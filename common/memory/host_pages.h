// Memory of the host in whole pages, for what is large and long-lived there.
#pragma once

#include <memory>

#include "common/base/types.h"

namespace sc {

/// At least `bytes` bytes of zeros, touched by all of LibTorch's intra-op threads (a page costs the kernel
/// some time at its first use), in 2 MiB pages where the system gives them (MADV_HUGEPAGE). They cost what
/// was asked, up to a page: LibTorch's own pinned blocks are rounded up to a power of two.
///   pinned  CUDA builds: registered with the driver, so that a GPU copies from and to them by itself. Where
///           the driver refuses, it says so on stderr and the pages stay as they are: copies are slower then.
///   Errors  std::bad_alloc.
std::shared_ptr<void> host_pages(Bytes bytes, bool pinned);

}  // namespace sc

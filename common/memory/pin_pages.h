// Host memory that a GPU copies from and to by itself. A build without GPU code has none.
#pragma once

#include <cstddef>

namespace sc {

/// Errors: DeviceError with CUDA's reason.
void pin_pages(void* memory, std::size_t bytes);
void unpin_pages(void* memory) noexcept;

}  // namespace sc

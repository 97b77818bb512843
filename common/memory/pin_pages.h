// Pins host memory, so that a GPU copies to and from it by itself. A build without GPU code has no such
// memory.
#pragma once

#include <cstddef>

namespace sc {

/// Pins pages with the driver.
///   Errors  DeviceError with CUDA's reason.
void pin_pages(void* memory, std::size_t bytes);
void unpin_pages(void* memory) noexcept;

}  // namespace sc

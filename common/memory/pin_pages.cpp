#include "common/memory/pin_pages.h"

#include <cuda_runtime_api.h>

#include "common/base/check.h"
#include "common/base/text.h"

namespace sc {

void pin_pages(void* memory, std::size_t bytes) {
  const cudaError_t error = ::cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
  if (error == cudaSuccess) return;
  throw DeviceError("cudaHostRegister of " + human_bytes(Bytes(static_cast<std::int64_t>(bytes))) + ": " +
                    ::cudaGetErrorString(error));
}

// An error is ignored: when the process ends the driver may be gone already, and nothing is left to undo.
void unpin_pages(void* memory) noexcept { (void)::cudaHostUnregister(memory); }

}  // namespace sc

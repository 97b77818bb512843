#include "common/storage/uring_io.h"

#include <cerrno>
#include <stdexcept>

#ifdef STAGECRAFT_LIBURING
#include <liburing.h>
#endif

namespace sc {

#ifdef STAGECRAFT_LIBURING
namespace {

/// Throws if a liburing function returned -errno, otherwise passes its result on.
int check_uring(int result) {
  if (result < 0) throw std::runtime_error(errno_text(-result));
  return result;
}

template <class Call>
int retry_uring(Call call) {
  int result = call();
  while (result == -EINTR || result == -EAGAIN) result = call();
  return check_uring(result);
}

struct Ring {
  explicit Ring(int depth) { check_uring(::io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0)); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() { ::io_uring_queue_exit(&ring); }
  io_uring ring{};
};

/// Keeps a ring open in the calling thread until the thread ends. Newer kernels end a thread's workers with
/// its last ring, and a worker that is ending may still be given the first transfer of the next ring: then
/// nobody carries it out, and reap() waits for ever (seen on Linux 6.18.44 with two busy processors).
void keep_workers() { thread_local const Ring kept(1); }

class UringIo final : public BlockIo {
 public:
  UringIo(File& file, int depth) : ring_(depth), descriptor_(file.descriptor()) {}

  void submit(const BlockRequest& request) override {
    keep_workers();
    // There is a free entry, since the ring has at least `depth`.
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_.ring);
    const auto size = static_cast<unsigned>(request.bytes.size());
    const auto offset = static_cast<std::uint64_t>(request.offset.value());
    if (request.kind == BlockRequest::Kind::read) {
      ::io_uring_prep_read(entry, descriptor_, request.bytes.data(), size, offset);
    } else {
      ::io_uring_prep_write(entry, descriptor_, request.bytes.data(), size, offset);
    }
    ::io_uring_sqe_set_data64(entry, request.id);
    retry_uring([&] { return ::io_uring_submit(&ring_.ring); });
  }

  BlockResult reap() override {
    io_uring_cqe* entry = nullptr;
    retry_uring([&] { return ::io_uring_wait_cqe(&ring_.ring, &entry); });
    const BlockResult result{entry->user_data, entry->res};
    ::io_uring_cqe_seen(&ring_.ring, entry);
    return result;
  }

 private:
  Ring ring_;
  int descriptor_;
};

}  // namespace

std::unique_ptr<BlockIo> open_uring_io(File& file, int depth) {
  return std::make_unique<UringIo>(file, depth);
}

#else

std::unique_ptr<BlockIo> open_uring_io(File& /*file*/, int /*depth*/) {
  throw std::runtime_error("this build has none (it was configured without liburing-dev)");
}

#endif

}  // namespace sc

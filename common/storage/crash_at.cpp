#include "common/storage/crash_at.h"

#include <atomic>
#include <csignal>
#include <utility>

#include "common/storage/hooked_file_ops.h"

namespace sc {
namespace {

class CrashAt final : public HookedFileOps {
 public:
  CrashAt(std::int64_t nth, std::unique_ptr<FileOps> inner) : HookedFileOps(std::move(inner)), left_(nth) {}

 protected:
  void before(const FileCall& call) override {
    if (!is_mutating(call.op) || --left_ != 0) return;
    if (call.op == FileOp::write) call.file->write_some(call.bytes.first(call.bytes.size() / 2), call.offset);
    std::raise(SIGKILL);
  }

 private:
  std::atomic<std::int64_t> left_;
};

}  // namespace

std::unique_ptr<FileOps> crash_at(std::int64_t nth, std::unique_ptr<FileOps> inner) {
  return std::make_unique<CrashAt>(nth, std::move(inner));
}

}  // namespace sc

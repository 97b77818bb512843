#include "common/watch/deadline.h"

#include <unistd.h>

#include <utility>

#include "common/base/check.h"
#include "common/base/message.h"

namespace sc {

Deadline::Deadline(std::chrono::milliseconds limit, std::function<void()> expire)
    : thread_([this, limit, expire = std::move(expire)] {
        std::unique_lock lock(mutex_);
        if (!over_.wait_for(lock, limit, [this] { return done_; })) expire();
      }) {}

Deadline::Deadline(std::chrono::milliseconds limit, std::string text)
    : Deadline(limit, [text = std::move(text)] {
        say_error(text);
        ::_exit(static_cast<int>(ExitCode::lost_rank));
      }) {}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  over_.notify_all();
  thread_.join();
}

}  // namespace sc

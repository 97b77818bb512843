#include "common/watch/deadline.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/base/check.h"
#include "common/base/message.h"

namespace sc {

Deadline::Deadline(std::chrono::milliseconds limit, std::function<void()> expire)
    : thread_([limit, expire = std::move(expire)](const std::stop_token& over) {
        std::mutex mutex;
        std::condition_variable_any changed;
        std::unique_lock lock(mutex);
        changed.wait_for(lock, over, limit, [] { return false; });
        if (!over.stop_requested()) expire();
      }) {}

Deadline::Deadline(std::chrono::milliseconds limit, std::string text)
    : Deadline(limit, [text = std::move(text)] {
        say_error(text);
        ::_exit(static_cast<int>(ExitCode::lost_rank));
      }) {}

}  // namespace sc

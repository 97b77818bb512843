#include "common/comm/completion.h"

#include "common/base/check.h"
#include "common/comm/communicator.h"

namespace sc {

void OpFailure::raise() const {
  if (kind == Kind::input) throw InputError(ExitCode::usage, where, what, "");
  const std::string text = where.empty() ? what : where + ": " + what;
  if (kind == Kind::device) throw DeviceError(text);
  throw AbortedError(text);
}

OpFailure failure_from_current_exception() {
  try {
    throw;
  } catch (const InputError& error) {
    return {OpFailure::Kind::input, error.where(), error.message()};
  } catch (const AbortedError& error) {
    return {OpFailure::Kind::aborted, "", error.what()};
  } catch (const std::exception& error) {
    return {OpFailure::Kind::device, "", error.what()};
  }
}

void Completion::finish(std::optional<OpFailure> failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  ended_ = Clock::now();
  failure_ = std::move(failure);
  changed_.notify_all();
}

std::optional<Completion::Clock::time_point> Completion::ended_at() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void Completion::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ended_.has_value(); });
  if (failure_) failure_->raise();
}

}  // namespace sc

#include "common/comm/completion.h"

#include "common/base/check.h"
#include "common/comm/communicator.h"

namespace sc {

void OpFailure::raise() const {
  const std::string text = where.empty() ? what : where + ": " + what;
  switch (kind) {
    case Kind::input:
      throw InputError(ExitCode::usage, where, what, "");
    case Kind::device:
      throw DeviceError(text);
    case Kind::aborted:
      break;
  }
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

void Completion::finish() noexcept {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  done_ = true;
  ended_ = Clock::now();
  changed_.notify_all();
}

void Completion::fail(OpFailure failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  done_ = true;
  ended_ = Clock::now();
  failure_ = std::move(failure);
  changed_.notify_all();
}

bool Completion::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::optional<Completion::Clock::time_point> Completion::ended_at() const {
  const std::lock_guard lock(mutex_);
  return done_ ? std::optional(ended_) : std::nullopt;
}

void Completion::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
  if (failure_) failure_->raise();
}

}  // namespace sc

#include "common/storage/cut_off.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

namespace sc {

/// Slots are linked once, used again, and never freed: the handler walks them without a lock.
struct Guarded {
  std::atomic<const std::byte*> begin = nullptr;  // null: free, or its owner has not finished
  std::atomic<const std::byte*> end = nullptr;
  std::string text;  // what is printed; written while `begin` is null
  Guarded* next = nullptr;
  bool taken = false;
};

namespace {

std::atomic<Guarded*> first = nullptr;  // NOLINT: a signal handler has nothing else
std::atomic<unsigned> patience = 0;     // NOLINT
struct sigaction before {};             // NOLINT
std::mutex mutex;                       // NOLINT: of those who take and give back slots

const Guarded* find(const std::byte* at) {
  for (const Guarded* slot = first.load(); slot != nullptr; slot = slot->next) {
    const std::byte* begin = slot->begin.load();
    if (begin != nullptr && at >= begin && at < slot->end.load()) return slot;
  }
  return nullptr;
}

// Calls nothing that is not async-signal-safe.
void on_lost_page(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const bool sent = info->si_code <= 0;  // by a process, which has no address
  const Guarded* slot = sent ? nullptr : find(static_cast<const std::byte*>(info->si_addr));
  if (slot == nullptr) {
    ::sigaction(SIGBUS, &before, nullptr);  // the access is tried again, and goes there
    if (sent) ::raise(SIGBUS);
    return;
  }
  if (const unsigned seconds = patience.load(); seconds > 0) ::sleep(seconds);
  [[maybe_unused]] const ssize_t said = ::write(STDERR_FILENO, slot->text.data(), slot->text.size());
  ::_exit(static_cast<int>(ExitCode::data));
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &before);
}

Guarded& free_slot() {
  for (Guarded* slot = first.load(); slot != nullptr; slot = slot->next) {
    if (!slot->taken) return *slot;
  }
  auto* slot = new Guarded;
  slot->next = first.load();
  first.store(slot);
  return *slot;
}

}  // namespace

Guarded* guard(std::span<const std::byte> bytes, const Path& path) {
  static const bool installed = (install(), true);
  (void)installed;
  const InputError error(ExitCode::data, path.string(), "was cut off while it was read",
                         "let the program that writes it end, or give a copy");
  const std::lock_guard lock(mutex);
  Guarded& slot = free_slot();
  slot.taken = true;
  slot.text = std::string("error: ") + error.what() + "\n";
  slot.end.store(bytes.data() + bytes.size());
  slot.begin.store(bytes.data());
  return &slot;
}

void unguard(Guarded& guarded) noexcept {
  const std::lock_guard lock(mutex);
  guarded.begin.store(nullptr);
  guarded.taken = false;
}

void set_cut_off_patience(unsigned seconds) { patience.store(seconds); }

}  // namespace sc

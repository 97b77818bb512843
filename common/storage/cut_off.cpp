#include "common/storage/cut_off.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace sc {

/// A guarded mapping, never freed: the signal handler walks the list without a lock.
struct Guarded {
  const std::span<const std::byte> bytes;
  const std::string text;  // printed by the handler
  std::atomic<bool> mapped = true;
  Guarded* next = nullptr;
};

namespace {

std::atomic<Guarded*> first = nullptr;  // NOLINT: a signal handler has nothing else
std::atomic<unsigned> patience = 0;     // NOLINT
struct sigaction before {};             // NOLINT

const Guarded* find(const std::byte* at) {
  const Guarded* slot = first.load();
  while (slot != nullptr &&
         !(slot->mapped && at >= slot->bytes.data() && at < slot->bytes.data() + slot->bytes.size()))
    slot = slot->next;
  return slot;
}

// The signal handler. Calls only async-signal-safe functions.
void on_lost_page(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const bool sent = info->si_code <= 0;  // sent by a process, so there is no address
  const Guarded* slot = sent ? nullptr : find(static_cast<const std::byte*>(info->si_addr));
  if (slot == nullptr) {
    // Returning repeats the access, which raises the signal for the previous handler.
    ::sigaction(SIGBUS, &before, nullptr);
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

}  // namespace

Guarded* guard(std::span<const std::byte> bytes, const Path& path) {
  static const bool installed = (install(), true);
  (void)installed;
  const InputError error(ExitCode::data, path.string(), "was cut off while it was read",
                         "let the program that writes it end, or give a copy");
  auto* guarded = new Guarded{bytes, std::string("error: ") + error.what() + "\n"};
  guarded->next = first.load();
  while (!first.compare_exchange_weak(guarded->next, guarded)) {
  }
  return guarded;
}

void unguard(Guarded& guarded) noexcept { guarded.mapped = false; }

void set_cut_off_patience(unsigned seconds) { patience.store(seconds); }

}  // namespace sc

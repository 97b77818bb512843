// Errors that a user can act on, and the one macro that checks a C library's return value.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "common/input/printable.h"

namespace sc {

/// The exit codes of every program; docs/troubleshooting.md explains them. Bare mpirun has its own.
enum class ExitCode : int {
  ok = 0,
  usage = 64,    // command line or configuration
  data = 65,     // a data or weight file is not what it must be
  missing = 69,  // a program, library, device or file system feature is not there
  claim = 70,    // a predicted number did not hold, or a non-finite loss
  cannot_write = 73,
  lost_rank = 75,  // a hang, or a rank that died
};

/// Bad input: printed once, by rank 0, as "error: <where>: <what>" and "  fix: <fix>", never as a stack
/// trace. Its text is safe to show: nothing quoted from a file or a command line can steer a terminal.
class InputError : public std::runtime_error {
 public:
  InputError(ExitCode code, std::string_view where, std::string_view what, std::string_view fix)
      : InputError(Shown{}, code, shown(where, kMostWhere), shown_message(what), shown_message(fix)) {}
  [[nodiscard]] ExitCode code() const { return code_; }
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] const std::string& fix() const { return fix_; }

 private:
  static constexpr std::size_t kMostWhere = 5000;  // a path has up to 4096 bytes
  struct Shown {};
  InputError(Shown, ExitCode code, std::string where, std::string what, std::string fix)
      : std::runtime_error(where + ": " + what + (fix.empty() ? "" : "\n  fix: " + fix)),
        code_(code),
        where_(std::move(where)),
        message_(std::move(what)),
        fix_(std::move(fix)) {}

  ExitCode code_;
  std::string where_, message_, fix_;
};

/// A predicted number (bytes, operations, equality of replicas) did not hold. Exit code 70.
class ClaimError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A library call (MPI, CUDA, NCCL, POSIX) failed: file, line, the call's text, the library's message.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Tells for one library's status type what success is and what a failure means. The specialisation stands
/// next to the library's use (comm/mpi/mpi_check.h, comm/nccl/cuda_check.h) and has `static bool ok(Status)`
/// and `static std::string text(Status)`.
template <class Status>
struct StatusTraits;

template <class Status>
void check_result(Status status, const char* call, const char* file, int line) {
  if (!StatusTraits<Status>::ok(status)) {
    throw DeviceError(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                      StatusTraits<Status>::text(status));
  }
}

}  // namespace sc

#define SC_CHECK(call) ::sc::check_result((call), #call, __FILE__, __LINE__)

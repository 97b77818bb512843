#include "common/run/failure.h"

#include <c10/util/Exception.h>
#include <spdlog/fmt/fmt.h>

#include "common/comm/communicator.h"

namespace sc::detail {

Failure current_failure(Rank rank) {
  const std::string who = fmt::format("rank {}: ", to_int(rank));
  try {
    throw;
  } catch (const AbortedError&) {
    return {ExitCode::lost_rank, "another rank ended the run"};  // that rank speaks first
  } catch (const InputError& error) {
    return {error.code(), error.what()};
  } catch (const ClaimError& error) {
    return {ExitCode::claim, error.what()};
  } catch (const c10::Error& error) {  // without LibTorch's stack trace
    return {ExitCode::claim, who + error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {ExitCode::claim, who + error.what()};
  }
}

}  // namespace sc::detail

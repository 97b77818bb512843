// Ranks as threads of one process, for unit tests, interface probes and programs started without a launcher.
#pragma once

#include <memory>

#include "common/comm/communicator.h"

namespace sc {

struct LocalGroup;

/// The state shared by n ranks, whose threads get one communicator each; it lives as long as any of these.
///   Order   operations return at once; the last rank to post a collective carries it out, without holding a
///           lock, so that a later operation never waits for an earlier one. A world of one needs no thread.
///   Errors  ranks that disagree (kind, dtype, elements, root) all get the same InputError from wait(), which
///           names two of them; ranks that come later get it too, so no rank hangs. A wrong argument is
///           refused when the operation is issued.
class LocalWorld {
 public:
  explicit LocalWorld(int n);
  /// A communicator for that rank; a second call gives a second handle on the same rank. Not thread-safe.
  [[nodiscard]] std::unique_ptr<Communicator> communicator(Rank rank);

 private:
  std::shared_ptr<LocalGroup> group_;
};

}  // namespace sc

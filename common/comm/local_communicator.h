// Ranks as threads of one process, for unit tests, interface probes and programs started without a launcher.
#pragma once

#include <memory>

#include "common/comm/communicator.h"

namespace sc {

struct LocalGroup;

/// The state shared by n ranks, whose threads get one communicator each. The state lives as long as any of
/// them.
///   Order   operations return at once; the last rank to post a collective carries it out, without holding a
///           lock, so that a later operation never waits for an earlier one. A world of one needs no thread.
///   Errors  ranks that disagree (kind, dtype, elements, root) all get the same InputError from wait(), which
///           names two of them; ranks that come later get it too, so no rank hangs. A wrong argument is
///           refused when the operation is issued.
class LocalWorld {
 public:
  explicit LocalWorld(int n);
  /// Not thread-safe. Asking twice for a rank gives two handles on the same rank.
  [[nodiscard]] std::unique_ptr<Communicator> communicator(Rank rank);

 private:
  std::shared_ptr<LocalGroup> group_;
};

}  // namespace sc

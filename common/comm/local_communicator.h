// Ranks as threads of one process: unit tests, interface probes, and every program that was started without a
// launcher.
#pragma once

#include <memory>

#include "common/comm/communicator.h"

namespace sc {

struct LocalGroup;

/// The state that n ranks share. Hand each rank's thread its communicator; the state lives as long as any of
/// them.
///   Order   operations return at once; the last rank to post a collective carries it out, outside every
///           lock, so that a later operation never waits for an earlier one. A world of one needs no thread
///           at all.
///   Errors  ranks that disagree (kind, dtype, elements, root) all get the same InputError from wait(),
///           naming two of them; the ones that come later get it too, so nobody hangs. A wrong argument is
///           refused when issued.
class LocalWorld {
 public:
  explicit LocalWorld(int n);
  /// For one thread at a time. Asking twice for a rank gives two handles on the same rank.
  [[nodiscard]] std::unique_ptr<Communicator> communicator(Rank rank);

 private:
  std::shared_ptr<LocalGroup> group_;
};

}  // namespace sc

// Compiled once per case by tests/base/CMakeLists.txt: without a case it must compile, with one it must not.
#include "common/base/types.h"

namespace sc {

Bytes allowed(Bytes a, Bytes b) { return a + b * 2; }

#if defined(CASE_bytes_plus_elements)
auto refused(Bytes a, Elements b) { return a + b; }
#elif defined(CASE_bytes_plus_number)
auto refused(Bytes a) { return a + 1; }
#elif defined(CASE_bytes_from_number)
Bytes refused() { return 1; }
#elif defined(CASE_rank_as_world)
WorldSize refused(Rank rank) { return rank; }
#endif

}  // namespace sc

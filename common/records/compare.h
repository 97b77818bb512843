// Two records of the same work side by side: --compare. No torch.
#pragma once

#include <map>
#include <string>

#include "common/records/record.h"

namespace sc {

/// What a run is compared with.
struct OtherRun {
  std::string path;  // as given
  RunRecord record;
};

/// Reads it before the run begins. `workload`: of the run that is about to.
///   Errors  InputError: 65 if it is no record, or of a run that came to no end; 64 if the work is another,
///           with the keys that differ.
OtherRun read_other_run(FileOps& ops, const std::string& path,
                        const std::map<std::string, std::string>& workload);

/// Tables: bytes of rank 0 by purpose, operations of a step by kind with what rank 0 sends, time and waiting,
/// loss. Each has the other run's column, this one's, and what became of it. The heading names initial
/// weights that differ; validation losses of other texts are left out, and it is said why.
std::string format_comparison(const RunRecord& run, const OtherRun& other);

}  // namespace sc

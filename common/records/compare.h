// Compares two records of the same work: --compare. No torch.
#pragma once

#include <map>
#include <string>

#include "common/records/record.h"

namespace sc {

/// The run that this one is compared with.
struct OtherRun {
  std::string path;  // as given
  RunRecord record;
};

/// Reads the other record before the run begins. `workload` is this run's.
///   Errors  InputError: 65 if it is no record, or if that run did not finish; 64 if its workload differs,
///           with the keys.
OtherRun read_other_run(FileOps& ops, const std::string& path,
                        const std::map<std::string, std::string>& workload);

/// Tables: bytes of rank 0 by purpose, operations of a step by kind with the bytes that rank 0 sends, time
/// and waiting, loss. Each has a column for the other run, one for this run, and the change. The heading
/// names initial weights that differ. Validation losses on different texts are left out, with a remark.
std::string format_comparison(const RunRecord& run, const OtherRun& other);

}  // namespace sc

// Compares two records of the same work: --compare. No torch.
#pragma once

#include <map>
#include <string>

#include "common/records/record.h"

namespace sc {

struct OtherRun {
  std::string path;  // as given
  RunRecord record;
};

/// Reads the record of the run to compare with, before this run begins, whose workload is `workload`.
///   Errors  InputError: 65 if it is no record, or if that run did not finish; 64 if its workload differs,
///           with the keys.
OtherRun read_other_run(FileOps& ops, const std::string& path,
                        const std::map<std::string, std::string>& workload);

/// Compares bytes of rank 0 by purpose, operations of a step by kind with the bytes that rank 0 sends, time
/// and waiting, and loss: a table each, with columns for the other run, this run, and the change. The heading
/// names initial weights that differ. Validation losses on different texts are left out, with a remark.
std::string format_comparison(const RunRecord& run, const OtherRun& other);

}  // namespace sc

// What a run says about itself before it starts. No torch.
#pragma once

#include <map>
#include <string>

#include "common/config/batch_plan.h"
#include "common/memory/plan.h"

namespace sc {

struct Hardware {
  std::string host, cpu;  // e.g. "AMD EPYC ..."
  int cores = 1;          // usable by this process
  Bytes memory;
};
Hardware describe_hardware();

std::string describe_versions();
/// The versions by name: {"LibTorch", "MPI", "compiler"} with "2.5.1", "Open MPI 4.1.4", "g++ 12.2.0".
std::map<std::string, std::string> versions();
/// The commit of the source tree that this program was built from, with "-dirty" if changed. "unknown" with
/// git's message in brackets if there is no git, no checkout, or one of another user. A copy without git may
/// set STAGECRAFT_COMMIT.
std::string source_commit();

/// The lines before a plan's table: device, ranks, model, batch, data, dtype.
std::string describe_plan(const std::string& lesson, const RunShape& shape, const BatchPlan& batch);
/// A cap and a plan compared, as "  --memory-cap 6.00 GB: fits, 1.20 GB are left", or how much is missing.
std::string describe_cap(const std::string& flag, Bytes total, Bytes cap);
/// The lines of describe_plan for a run that begins, with its machine.
std::string describe_run(const std::string& lesson, const RunShape& shape, const BatchPlan& batch,
                         const std::string& launcher, const std::string& gpu = "");

}  // namespace sc

// What a run says about itself before it starts. No torch.
#pragma once

#include <map>
#include <string>

#include "common/config/batch_plan.h"
#include "common/memory/plan.h"

namespace sc {

/// The machine this process runs on.
struct Hardware {
  std::string host, cpu;  // "AMD EPYC ..."
  int cores = 1;          // that this process may use
  Bytes memory;
};
Hardware describe_hardware();

/// LibTorch, MPI and compiler versions, one a line; for --version.
std::string describe_versions();
/// The same of {"LibTorch", "MPI", "compiler"}: "2.5.1", "Open MPI 4.1.4", "g++ 12.2.0".
std::map<std::string, std::string> versions();
/// The commit of the source tree this program was built from, "-dirty" if changed; "unknown"
/// and what git said in brackets where it names none: no git, no checkout, or one of another user.
/// STAGECRAFT_COMMIT says it where the tree is a copy that git does not know, as on a lent machine.
std::string source_commit();

/// The lines before the plan table: where it runs, ranks, model, batch, data, dtype.
std::string describe_plan(const std::string& lesson, const RunShape& shape, const BatchPlan& batch);
/// "  --memory-cap 6.00 GB: fits, 1.20 GB are left", or by how much it does not.
std::string describe_cap(const std::string& flag, Bytes total, Bytes cap);
/// The lines of describe_plan for a run that begins, with the machine.
std::string describe_run(const std::string& lesson, const RunShape& shape, const BatchPlan& batch,
                         const std::string& launcher, const std::string& gpu = "");

}  // namespace sc

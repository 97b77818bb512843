// A plan for programs: what --plan --json prints. No torch.
#pragma once

#include <string>
#include <vector>

#include "common/memory/plan.h"
#include "common/model/context_cut.h"
#include "common/records/report.h"

namespace sc {

/// One JSON object: the run, the model's units, and for each rank its buffers and the operations of a step.
///   ranks  as format_plan_table takes them
///   notes  the remarks below a plan's text
///   cut    where ranks share tokens: "pairs" lists [rank, hop, chunk of queries, chunk of keys]
std::string format_plan_json(const std::string& lesson, const RunShape& shape,
                             const std::vector<RankPlan>& ranks, const std::vector<std::string>& notes,
                             ContextCut cut = {});

}  // namespace sc

#include "plans.h"

#include "00_one_device/reference_order.h"
#include "01_data_parallel/data_parallel.h"
#include "02_zero1/zero1.h"
#include "03_zero2/zero2.h"
#include "04_zero3/zero3.h"
#include "05_offload/offload.h"
#include "07_pipeline/pipeline_plan.h"

namespace sc {
std::vector<StrategyPlans> lesson_plans() {
  return {{"00_one_device", "one device (lesson 00)", std::make_shared<ReferenceOrderPlans>()},
          {"01_data_parallel", "data parallel (lesson 01)", std::make_shared<DataParallelPlans>()},
          {"02_zero1", "ZeRO-1 (lesson 02)", std::make_shared<Zero1Plans>()},
          {"03_zero2", "ZeRO-2 (lesson 03)", std::make_shared<Zero2Plans>()},
          {"04_zero3", "ZeRO-3 (lesson 04)", std::make_shared<Zero3Plans>()},
          {"05_offload", "offload to the host (lesson 05)", std::make_shared<OffloadPlans>()},
          {"07_pipeline", "a pipeline (lesson 07)", std::make_shared<PipelinePlans>()}};
}

}  // namespace sc

#include "plans.h"

#include "00_one_device/reference_order.h"
#include "01_data_parallel/data_parallel.h"
#include "02_zero1/zero1.h"
#include "03_zero2/zero2.h"
#include "04_zero3/zero3.h"
#include "05_offload/offload.h"
#include "07_pipeline/pipeline.h"

namespace sc {
std::vector<StrategyPlans> lesson_plans() {
  return {plans_of<ReferenceOrder>("00_one_device", "one device (lesson 00)"),
          plans_of<DataParallel>("01_data_parallel", "data parallel (lesson 01)"),
          plans_of<Zero1>("02_zero1", "ZeRO-1 (lesson 02)"),
          plans_of<Zero2>("03_zero2", "ZeRO-2 (lesson 03)"),
          plans_of<Zero3>("04_zero3", "ZeRO-3 (lesson 04)"),
          plans_of<Offload>("05_offload", "offload to the host (lesson 05)"),
          plans_of<Pipeline>("07_pipeline", "a pipeline (lesson 07)")};
}

}  // namespace sc

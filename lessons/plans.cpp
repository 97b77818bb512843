#include "plans.h"

#include <algorithm>
#include <stdexcept>

#include "01_data_parallel/data_parallel_plan.h"
#include "02_zero1/zero1_plan.h"
#include "03_zero2/zero2_plan.h"
#include "04_zero3/zero3_plan.h"
#include "05_offload/offload_plan.h"
#include "06_infinity/infinity_plan.h"
#include "07_pipeline/pipeline_plan.h"
#include "08_weight_versions/weight_versions_plan.h"
#include "10_tensor_parallel/tensor_parallel_plan.h"
#include "11_combined/combined_plan.h"
#include "12_context_parallel/context_parallel_plan.h"
#include "reference/reference_plan.h"

namespace sc {
namespace {

using Settings = std::vector<std::string>;

struct Listed {
  std::string folder, name;
  std::shared_ptr<const Plans> plans;   // with the defaults
  std::vector<Settings> variants = {};  // beside them
};

std::vector<Listed> all_lessons() {
  return {{"00_one_device", "one device", std::make_shared<ReferenceOrderPlans>()},
          {"01_data_parallel", "data parallel", std::make_shared<DataParallelPlans>()},
          {"02_zero1", "ZeRO-1", std::make_shared<Zero1Plans>()},
          {"03_zero2", "ZeRO-2", std::make_shared<Zero2Plans>()},
          {"04_zero3", "ZeRO-3", std::make_shared<Zero3Plans>()},
          {"05_offload",
           "offload",
           std::make_shared<OffloadPlans>(),
           {{"update=delayed"}, {"parameters=sharded"}, {"parameters=sharded", "update=delayed"}}},
          {"06_infinity",
           "infinity",
           std::make_shared<InfinityPlans>(),
           {{"update=delayed", "grads_at=host"}, {"parameters=sharded", "params_at=disk"}}},
          {"07_pipeline",
           "pipeline",
           std::make_shared<PipelinePlans>(),
           {{"warmup=1"}, {"replicas=2", "states=sharded"}}},
          {"08_weight_versions",
           "weight versions",
           std::make_shared<WeightVersionsPlans>(),
           {{"versions=two_buffers"}}},
          {"10_tensor_parallel",
           "tensor parallel",
           std::make_shared<TensorParallelPlans>(),
           {{"lanes=2"}, {"lanes=2", "gathered=kept"}}},
          {"11_combined", "combined", std::make_shared<CombinedPlans>()},
          {"12_context_parallel",
           "context parallel",
           std::make_shared<ContextParallelPlans>(),
           {{"exchange=gather"}}}};
}

StrategyPlans with(const Listed& lesson, const Settings& settings) {
  return {lesson.folder, lesson.name, lesson.plans->with(settings), settings};
}

// What changes when weights are updated, or adds copies, saves no memory.
bool saves_memory(const Settings& settings) {
  return std::ranges::none_of(settings, [](const std::string& setting) {
    return setting.starts_with("update=") || setting.starts_with("replicas=") ||
           setting.starts_with("versions=") || setting.starts_with("lanes=") ||
           setting.starts_with("warmup=");
  });
}

}  // namespace

std::vector<StrategyPlans> lesson_plans() {
  std::vector<StrategyPlans> plans;
  for (const Listed& lesson : all_lessons()) {
    plans.push_back(with(lesson, {}));
    for (const Settings& settings : lesson.variants) {
      plans.push_back(with(lesson, settings));
      plans.back().advised = saves_memory(settings);
    }
  }
  return plans;
}

StrategyPlans lesson_plans_of(const std::string& folder, const Settings& settings) {
  const std::vector<Listed> lessons = all_lessons();
  const auto found = std::ranges::find(lessons, folder, &Listed::folder);
  if (found == lessons.end()) throw std::logic_error("no lesson has the folder " + folder);
  return with(*found, settings);
}

}  // namespace sc

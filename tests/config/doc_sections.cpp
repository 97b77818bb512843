#include "tests/config/doc_sections.h"

#include <string>

#include "common/config/workload_table.h"
#include "lessons/plans.h"

namespace sc {

DocSections doc_sections() {
  DocSections docs{std::make_unique<Workload>(), {}, {}};
  const std::string defaults =
      "Defaults are those of tests/workloads/four_blocks.json; the files in configs/ give every key.";
  docs.sections.push_back({"Workload", defaults, workload_fields().bind(*docs.workload)});
  for (const StrategyPlans& lesson : lesson_plans()) {
    if (!lesson.settings.empty()) continue;
    docs.plans.push_back(lesson.plans->with({}));
    docs.sections.push_back({"Strategy of lessons/" + lesson.folder,
                             "In lessons/" + lesson.folder + "/config.json.", docs.plans.back()->fields()});
  }
  return docs;
}

}  // namespace sc

#include "tests/config/doc_sections.h"

#include "common/config/workload_table.h"
#include "lessons/00_one_device/reference_order.h"
#include "lessons/01_data_parallel/data_parallel.h"
#include "lessons/02_zero1/zero1.h"
#include "lessons/03_zero2/zero2.h"
#include "lessons/04_zero3/zero3.h"
#include "lessons/05_offload/offload.h"
#include "lessons/06_infinity/infinity.h"
#include "lessons/07_pipeline/pipeline.h"
#include "lessons/08_weight_versions/weight_versions.h"
#include "lessons/10_tensor_parallel/tensor_parallel.h"
#include "lessons/11_combined/combined.h"

namespace sc {
namespace {

// The keys of one lesson, bound to options that live as long as the page is written.
template <Lesson S>
DocSection section_of(const std::string& folder) {
  static typename S::Plans plans;
  return {"Strategy of lessons/" + folder, "In lessons/" + folder + "/config.json.", plans.fields()};
}

}  // namespace

DocSections doc_sections() {
  DocSections docs{std::make_unique<Workload>(), {}};
  const std::string defaults =
      "Defaults are those of tests/workloads/four_blocks.json; the files in configs/ give every key.";
  docs.sections.push_back({"Workload", defaults, workload_fields().bind(*docs.workload)});
  docs.sections.push_back(section_of<ReferenceOrder>("00_one_device"));
  docs.sections.push_back(section_of<DataParallel>("01_data_parallel"));
  docs.sections.push_back(section_of<Zero1>("02_zero1"));
  docs.sections.push_back(section_of<Zero2>("03_zero2"));
  docs.sections.push_back(section_of<Zero3>("04_zero3"));
  docs.sections.push_back(section_of<Offload>("05_offload"));
  docs.sections.push_back(section_of<Infinity>("06_infinity"));
  docs.sections.push_back(section_of<Pipeline>("07_pipeline"));
  docs.sections.push_back(section_of<WeightVersions>("08_weight_versions"));
  docs.sections.push_back(section_of<TensorParallel>("10_tensor_parallel"));
  docs.sections.push_back(section_of<Combined>("11_combined"));
  return docs;
}

}  // namespace sc

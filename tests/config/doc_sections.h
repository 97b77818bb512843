// The chapters of docs/config.md: what the generator prints and the test expects.
#pragma once

#include <memory>
#include <vector>

#include "common/config/workload.h"
#include "common/strategy/plans.h"
#include "tests/support/config_docs.h"

namespace sc {

/// Owns the objects that the chapters' sections are bound to.
struct DocSections {
  std::unique_ptr<Workload> workload;
  std::vector<std::unique_ptr<Plans>> plans;  // of each lesson, with its defaults
  std::vector<DocSection> sections;
};
DocSections doc_sections();

}  // namespace sc

// docs/config.md, written from the tables. No torch.
#pragma once

#include <string>
#include <vector>

#include "common/config/field_table.h"

namespace sc {

/// One chapter: the keys of a workload, or of one strategy.
struct DocSection {
  std::string title;
  std::string intro;  // may be empty
  FieldSet fields;    // bound to an object with its defaults that is still alive
};

/// The whole page as Markdown.
std::string config_markdown(const std::vector<DocSection>& sections);

}  // namespace sc

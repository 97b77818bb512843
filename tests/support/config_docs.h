// The text of docs/config.md, written from the tables of settings. No torch.
#pragma once

#include <string>
#include <vector>

#include "common/config/field_table.h"

namespace sc {

/// One chapter of docs/config.md: the keys of a workload, or of one strategy.
struct DocSection {
  std::string title;
  std::string intro;  // may be empty
  FieldSet fields;    // bound to an object with its defaults that is still alive
};

/// The whole page docs/config.md as Markdown.
std::string config_markdown(const std::vector<DocSection>& sections);

}  // namespace sc

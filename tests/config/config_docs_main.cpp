// Prints docs/config.md.
#include <iostream>

#include "tests/config/doc_sections.h"

int main() {
  const sc::DocSections docs = sc::doc_sections();
  std::cout << sc::config_markdown(docs.sections);
  return 0;
}

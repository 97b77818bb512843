#include "tests/support/config_docs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/config/doc_sections.h"

namespace sc {
namespace {

TEST(ConfigDocs, ThePageIsWhatTheTablesSay) {
  std::ostringstream page;
  page << std::ifstream("docs/config.md").rdbuf();
  EXPECT_TRUE(page.str() == config_markdown(doc_sections().sections))
      << "docs/config.md is not what the tables say. Write it again:\n"
         "  cmake --build build/cpu --target config_docs && build/cpu/tests/lessons/config_docs > "
         "docs/config.md";
}

TEST(ConfigDocs, EveryFieldHasALineOfMeaning) {
  for (const DocSection& section : doc_sections().sections) {
    for (const Field& field : section.fields.fields()) {
      EXPECT_GE(field.doc.size(), 10U) << field.path;
      EXPECT_EQ(field.doc.find('\n'), std::string::npos) << field.path;
    }
  }
}

}  // namespace
}  // namespace sc

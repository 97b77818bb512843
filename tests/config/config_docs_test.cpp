#include "tests/support/config_docs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "lessons/plans.h"
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

TEST(ConfigDocs, EveryLessonWithAPlanIsInTheList) {
  std::set<std::string> listed, planned;
  for (const StrategyPlans& lesson : lesson_plans()) listed.insert(lesson.folder);
  for (const auto& file : std::filesystem::recursive_directory_iterator("lessons")) {
    const std::string folder = file.path().parent_path().filename().string();
    const bool of_a_lesson = folder[0] >= '0' && folder[0] <= '9';
    if (of_a_lesson && file.path().filename().string().ends_with("_plan.cpp")) planned.insert(folder);
  }
  EXPECT_EQ(listed, planned);
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

#include "tests/support/test_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace sc::test {
namespace {

constexpr std::string_view kFlag = "--files=";

struct NamedFile {
  std::string name;
  bool has_tests = false;
};

std::vector<NamedFile> named(std::string_view list) {
  std::vector<NamedFile> files;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(':'), list.size());
    files.push_back({std::string(list.substr(0, end))});
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return files;
}

/// GoogleTest filters of tests inside the files named by --files, and of all other tests.
struct Filters {
  std::string inside, outside;
};

void append(std::string& filter, const std::string& test) { filter += (filter.empty() ? "" : ":") + test; }

Filters filters_of(std::vector<NamedFile>& files) {
  Filters filters;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    Filters tests;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(t);
      const auto file = std::ranges::find_if(
          files, [&](const NamedFile& f) { return std::string_view(test.file()).ends_with(f.name); });
      if (file != files.end()) file->has_tests = true;
      append(file != files.end() ? tests.inside : tests.outside,
             std::string(suite.name()) + "." + test.name());
    }
    // A suite that lies on one side is written as "Suite.*", because GoogleTest prints its filter.
    const std::string whole = std::string(suite.name()) + ".*";
    if (!tests.inside.empty()) append(filters.inside, tests.outside.empty() ? whole : tests.inside);
    if (!tests.outside.empty()) append(filters.outside, tests.inside.empty() ? whole : tests.outside);
  }
  return filters;
}

}  // namespace

void keep_named_files(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kFlag)) continue;
    std::vector<NamedFile> files = named(argument.substr(kFlag.size()));
    const Filters filters = filters_of(files);
    for (const NamedFile& file : files) {
      if (file.has_tests) continue;
      std::fprintf(stderr, "error: %s: no test of this program stands in it\n", file.name.c_str());
      std::exit(64);
    }
    std::string& filter = ::testing::GTEST_FLAG(filter);
    if (filter == "*")
      filter = filters.inside;
    else if (!filters.outside.empty())
      filter += (filter.find('-') == std::string::npos ? "-" : ":") + filters.outside;
  }
}

}  // namespace sc::test

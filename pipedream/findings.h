// Collects what the parts of the checker find (check.cpp, check_versions.cpp, check_deadlock.cpp).
#pragma once

#include <utility>

#include "pipedream/check.h"

namespace sc::pipedream {

class Findings {
 public:
  explicit Findings(CheckReport& report) : report_(report) {}

  void add(Rule rule, int stage, std::size_t index, std::string text) {
    found_[static_cast<std::size_t>(rule)] = true;
    if (report_.violations.size() < kMostViolations) {
      report_.violations.push_back({rule, stage, index, std::move(text)});
    } else {
      ++report_.more;
    }
  }
  [[nodiscard]] bool found(Rule rule) const { return found_[static_cast<std::size_t>(rule)]; }

 private:
  CheckReport& report_;
  bool found_[kRules] = {};
};

void check_versions(const Schedule& schedule, Findings& findings);
/// Checks the rule deadlock, for which the message rule must hold. Fills `cycle` if there is a deadlock.
void check_deadlock(const Schedule& schedule, Findings& findings, std::vector<Wait>& cycle);

}  // namespace sc::pipedream

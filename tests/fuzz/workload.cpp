// Fuzzes workload files. What is taken is written as text, and reads back equal; whether its values fit
// together is another check, which must survive them all.
#include <map>
#include <sstream>
#include <string>
#include <tuple>

#include "common/config/validate.h"
#include "common/config/workload_table.h"
#include "tests/fuzz/support.h"

namespace sc::fuzz {
namespace {

std::map<std::string, std::string> texts_of(const Workload& workload) {
  std::map<std::string, std::string> texts;
  std::istringstream lines(workload_text(workload));
  for (std::string line; std::getline(lines, line);)
    texts.emplace(line.substr(0, line.find('=')), line.substr(line.find('=') + 1));
  return texts;
}

// The numbers whose text may be shorter than they are.
auto numbers_of(const Workload& w) {
  const OptimConfig& o = w.optim;
  return std::tuple(o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.clip, o.min_lr_fraction, w.steps,
                    w.seed);
}

}  // namespace
}  // namespace sc::fuzz

SC_FUZZ_TARGET(workload) {
  const std::string path = file_of(text_of(data, size), "w.json").string();
  const auto workload = taken([&] { return sc::load_workload(path); });
  if (!workload) return 0;
  const sc::Workload again = sc::workload_of_texts(texts_of(*workload), "written");
  require(
      sc::workload_text(again) == sc::workload_text(*workload) && numbers_of(again) == numbers_of(*workload),
      "a workload does not read back equal");
  for (const std::int64_t world : {1, 3}) {
    for (const std::int64_t stages : {1, 2})
      taken([&] {
        return sc::validate({*workload, {}}, {.mesh = Mesh(WorldSize(world), {{Axis::stages, stages}})});
      });
  }
  return 0;
}

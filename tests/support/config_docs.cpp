#include "tests/support/config_docs.h"

#include <spdlog/fmt/fmt.h>

namespace sc {
namespace {

constexpr const char* kHead = R"(# Configuration

<!-- Generated: build the target config_docs and write its output here (tests/config checks it). Do not edit. -->

A run is described by a *workload* (what is trained) and a *strategy* (how ranks share it). The workload is a JSON file in configs/,
chosen with `--workload`; the strategy's keys are in the lesson's config.json, or the file given with `--strategy`. `--set key=value`
changes one key of either. Later wins: defaults, workload file, strategy file, `--set`. `--explain key` prints a key's meaning, its
present value and the place that value came from; `--explain all` prints them all.

In a file, `model.layers` is the key `layers` in the object `model`. Files are plain JSON without comments. A key that nobody reads, a key
given twice, and a value outside its range are errors (exit code 64) that name file, line and column.

Two run records compare only when their workload hashes are equal. The hash is the SHA-256 of all workload keys with their resolved
values, one `key=value` a line, sorted; strategy and number of ranks are not part of it.

The step's arithmetic: accumulation = `batch.global` / (`batch.micro` x data-parallel ranks) must be a whole number, where data-parallel
ranks = ranks / pipeline stages. With `--plan` it is rounded up, and the output says that a real run would refuse.
)";

// Escapes bars, which would end a cell of a Markdown table.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string config_markdown(const std::vector<DocSection>& sections) {
  std::string page = kHead;
  for (const DocSection& section : sections) {
    page += fmt::format("\n## {}\n\n", section.title);
    if (!section.intro.empty()) page += section.intro + "\n\n";
    page += "| key | type | unit | default | allowed | meaning |\n|---|---|---|---|---|---|\n";
    for (const Field& field : section.fields.fields())
      page += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", field.path, field.type, field.unit,
                          escaped(field.default_text), escaped(field.allowed()), escaped(field.doc));
  }
  return page;
}

}  // namespace sc

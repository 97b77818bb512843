#include "common/run/describe.h"

#include <mpi.h>
#include <spdlog/fmt/fmt.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "common/base/control_group.h"
#include "common/base/text.h"
#include "common/model/param_layout.h"

namespace sc {
namespace {

std::string first_line_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  char line[256] = "";
  if (!pipe || std::fgets(line, sizeof line, pipe.get()) == nullptr) return "";
  std::string text = line;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string field_of(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const auto colon = line.find(':');
    const auto begin = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "unknown";
}

std::string ask_git() {
  const std::string git = std::string("git -C '") + STAGECRAFT_SOURCE_DIR + "' ";
  const std::string commit = first_line_of(git + "rev-parse --short=12 HEAD 2>/dev/null");
  if (commit.empty()) {
    const std::string why = first_line_of(git + "rev-parse HEAD 2>&1 >/dev/null");
    return "unknown" + (why.empty() ? "" : " (" + why + ")");
  }
  return commit +
         (first_line_of(git + "status --porcelain --untracked-files=no 2>/dev/null").empty() ? "" : "-dirty");
}

std::string dtype_text(const PrecisionConfig& p) {
  std::string text =
      fmt::format("{} parameters and activations, {} gradients", name_of(p.dtype), name_of(p.grad_dtype));
  if (p.reduce_dtype != p.grad_dtype)
    text += fmt::format(", summed over ranks in {}", name_of(p.reduce_dtype));
  return text + (p.has_master() ? ", f32 master, momentum, variance" : ", f32 momentum, variance");
}

std::string describe_model(const RunShape& shape) {
  const GptConfig& m = shape.workload.model;
  const ParamLayout layout(m, shape.mesh.world());
  return fmt::format(
      "GPT of {} parameters (P = {} as stored): {} blocks, {} heads, width {}, context {}, vocabulary {} "
      "(stored "
      "as {}), {} head",
      human_count(layout.parameters().value()), human_count(layout.arena_size().value()), m.layers, m.heads,
      m.width, m.context, human_count(m.vocab), human_count(m.vocab_padded()), m.tied ? "tied" : "untied");
}

std::string describe_batch(const RunShape& shape, const BatchPlan& b) {
  const std::int64_t T = shape.workload.batch.sequence;
  return fmt::format("{} rows of {} tokens a step = {} a micro-batch x {} micro-batch{} x {} {} rank{}",
                     b.global, T, b.micro, b.accumulation, b.accumulation == 1 ? "" : "es", b.data_parallel,
                     b.data_parallel > to_int(shape.mesh.world()) ? "virtual" : "data-parallel",
                     b.data_parallel == 1 ? "" : "s");
}

std::string ranks_text(const RunShape& shape) {
  return fmt::format("{} rank{}", to_int(shape.mesh.world()), to_int(shape.mesh.world()) == 1 ? "" : "s");
}

std::string shape_lines(const RunShape& shape, const BatchPlan& batch) {
  return fmt::format("  model    {}\n  batch    {}\n  numbers  {}\n", describe_model(shape),
                     describe_batch(shape, batch), dtype_text(shape.workload.precision));
}

}  // namespace

Hardware describe_hardware() {
  char name[256] = "";
  const bool named = ::gethostname(name, sizeof name - 1) == 0;
  return {.host = named ? name : "",
          .cpu = field_of("/proc/cpuinfo", "model name"),
          .cores = usable_cores(),
          .memory = Bytes(static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE))};
}

std::map<std::string, std::string> versions() {
  const auto version = [](const char* name, int major, int minor, int patch) {
    return fmt::format("{}{}.{}.{}", name, major, minor, patch);
  };
  return {{"LibTorch", version("", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH)},
          {"MPI", version("Open MPI ", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION)},
          {"compiler", version("g++ ", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)}};
}

std::string source_commit() {
  if (const char* given = std::getenv("STAGECRAFT_COMMIT"); given != nullptr && *given != '\0') return given;
  // Cached: git takes a tenth of a second, and every checkpoint asks.
  static const std::string commit = ask_git();
  return commit;
}

std::string describe_versions() {
  const std::map<std::string, std::string> of = versions();
  return fmt::format("Stagecraft {}\nLibTorch {}\n{}\n{}\n", source_commit(), of.at("LibTorch"), of.at("MPI"),
                     of.at("compiler"));
}

std::string describe_plan(const std::string& lesson, const RunShape& shape, const BatchPlan& batch) {
  return fmt::format("{}: plan for {} on {}\n", lesson, ranks_text(shape),
                     shape.device == DeviceKind::cuda ? "GPUs" : "the CPU") +
         shape_lines(shape, batch);
}

std::string describe_cap(const std::string& flag, Bytes total, Bytes cap) {
  return fmt::format("  {} {}: {}\n", flag, human_bytes(cap),
                     total <= cap ? "fits, " + human_bytes(cap - total) + " are left"
                                  : "does not fit, " + human_bytes(total - cap) + " are missing");
}

std::string describe_run(const std::string& lesson, const RunShape& shape, const BatchPlan& batch,
                         const std::string& launcher, const std::string& gpu) {
  const Hardware h = describe_hardware();
  const bool alone = launcher == "none";
  const std::string started = alone ? "" : "started by " + launcher + ", ";
  const std::string threads =
      fmt::format("{} thread{}{}", shape.threads, shape.threads == 1 ? "" : "s", alone ? "" : " each");
  const std::string machine =
      fmt::format("{}, {} core{}, {} of memory, LibTorch {}", h.cpu, h.cores, h.cores == 1 ? "" : "s",
                  human_bytes(h.memory), versions().at("LibTorch"));
  const std::string where = gpu.empty() ? "the CPU" : to_int(shape.mesh.world()) == 1 ? "a GPU" : "GPUs";
  return fmt::format("{}\n  where    {} on {} ({}{}), {}\n", lesson, ranks_text(shape), where, started,
                     threads, machine) +
         (gpu.empty() ? "" : "  GPU      " + gpu + "\n") + shape_lines(shape, batch);
}

}  // namespace sc

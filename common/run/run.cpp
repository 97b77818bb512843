// From argv to an exit code: what every lesson's main() does before and after training.
#include <dlfcn.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/message.h"
#include "common/base/text.h"
#include "common/config/command_line.h"
#include "common/config/workload_table.h"
#include "common/gpu/gpu.h"
#include "common/input/printable.h"
#include "common/model/param_layout.h"
#include "common/records/ending.h"
#include "common/records/plan_json.h"
#include "common/records/report.h"
#include "common/run/describe.h"
#include "common/run/fit.h"
#include "common/run/host_memory.h"
#include "common/run/planning.h"
#include "common/run/run_files.h"
#include "common/run/run_lesson.h"
#include "common/run/run_plans.h"
#include "common/run/run_shape.h"
#include "common/run/train.h"
#include "common/run/world.h"
#include "common/storage/cut_off.h"
#include "common/watch/launch.h"

namespace sc::detail {
namespace {

// The device of a run. Without --device, 16-bit training takes a GPU if there is one.
DeviceChoice run_device(const Workload& workload, DeviceChoice asked) {
  if (asked == DeviceChoice::automatic && !gpu_available()) return DeviceChoice::cpu;
  return plan_device(workload, asked);
}

// The two lines of --plan --brief, for the rank that holds most.
std::string brief_plan(const std::string& lesson, const Prepared& run, const std::vector<RankPlan>& plans) {
  const auto most =
      std::ranges::max_element(plans, {}, [](const RankPlan& plan) { return plan.memory.total(); });
  const std::string first = describe_plan(lesson, run.shape, run.batch);
  return format_brief(most->memory, most->operations, nullptr, Rank{most->ranks.first}) +
         first.substr(0, first.find('\n') + 1);
}

void print_plan(const AnyLesson& lesson, const CommandLine& line, const Prepared& run) {
  const RunShape& shape = run.shape;
  const std::vector<RankPlan> plans = exact_plans_of(lesson.plans, shape, rank_plans_of(lesson.plans, shape));
  const std::vector<std::string> notes = notes_of(run, line);
  if (line.json) {
    std::cout << format_plan_json(lesson.info.name, shape, plans, notes, run.known.cut);
    return;
  }
  std::cout << (line.brief ? brief_plan(lesson.info.name, run, plans)
                           : describe_plan(lesson.info.name, shape, run.batch) +
                                 format_plan_table(plans, shape.mesh.world()) + lesson.plans.predict(shape));
  for (const std::string& note : notes) std::cout << "  note: " << note << "\n";
  Bytes most, on_host, on_disk;
  for (const RankPlan& plan : plans) {
    most = std::max(most, plan.memory.total());
    on_host = std::max(on_host, plan.memory.total(Place::pinned) + plan.memory.total(Place::host));
    on_disk = std::max(on_disk, plan.memory.total(Place::disk));
  }
  if (line.host_cap) std::cout << describe_cap("--host-cap", on_host, *line.host_cap);
  if (line.disk_cap) std::cout << describe_cap("--disk-cap", on_disk, *line.disk_cap);
  if (!line.memory_cap) return;
  std::cout << describe_cap("--memory-cap", most, *line.memory_cap);
  if (most > *line.memory_cap)
    std::cout << "  what fits, and what a rank then holds\n"
              << describe_changes(limited_run(lesson, shape, run.known, *line.memory_cap), most);
}

int print_once(const Launch& launch, const std::string& text) {
  if (launch.rank == Rank{0}) std::cout << printable(text);
  return 0;
}

void refuse_past(const char* flag, const std::optional<Bytes>& cap, Bytes asked, const std::string& where) {
  if (!cap || asked <= *cap) return;
  throw InputError(ExitCode::missing, fmt::format("{} {}", flag, human_bytes(*cap)),
                   fmt::format("a rank would hold {} {}", human_bytes(asked), where),
                   fmt::format("{} {}, or a strategy that holds less there", flag, asked.value()));
}

// Checks the memory outside the devices of all ranks on this host; on the CPU the devices share that memory.
// With GPUs only a container's limit is checked, because the host itself grants memory as it is used.
void refuse_what_the_host_lacks(const TrainJob& job) {
  const bool cpu = job.shape.device == DeviceKind::cpu;
  const std::optional<Bytes> free = cpu ? available_host_memory() : host_memory_left_of_limit();
  Bytes beside, device;  // of the rank that holds most there
  for (const RankPlan& rank : job.plans.world) {
    beside = std::max(beside, rank.memory.total(Place::pinned) + rank.memory.total(Place::host));
    if (cpu) device = std::max(device, rank.memory.total());
  }
  const std::int64_t ranks = to_int(job.launch.local_world);
  if (!free || beside.value() == 0 || (beside + device) * ranks <= *free) return;
  throw InputError(
      ExitCode::missing, fmt::format("{} of host memory free, ranks here: {}", human_bytes(*free), ranks),
      fmt::format("each would hold {} of it{}, {} more than there is in all", human_bytes(beside),
                  cpu ? " beside the " + human_bytes(device) + " of its device, which is the same memory"
                      : std::string(),
                  human_bytes((beside + device) * ranks - *free)),
      "a smaller model, or more machines");
}

// Refuses a plan that exceeds its limits. A GPU's free memory is known only later (train).
void refuse_too_large(const TrainJob& job) {
  for (const RankPlan& rank : job.plans.world) {
    refuse_past("--host-cap", job.line.host_cap,
                rank.memory.total(Place::pinned) + rank.memory.total(Place::host), "in the host's memory");
    refuse_past("--disk-cap", job.line.disk_cap, rank.memory.total(Place::disk), "on the disk");
  }
  refuse_what_the_host_lacks(job);
  const bool shared = !job.line.memory_cap && job.shape.device == DeviceKind::cpu;
  const std::optional<Bytes> cap = shared ? available_host_memory() : job.line.memory_cap;
  if (!cap) return;
  refuse_more_than(*cap, job, shared ? "this machine" : "", shared ? to_int(job.launch.local_world) : 0);
}

// Refuses what can be refused before anything is opened or allocated, then trains.
int run_job(TrainJob job) {
  refuse_too_large(job);
  if (!job.line.compare.empty())
    job.other = read_other_run(*posix_file_ops(), job.line.compare, values_of(job.shape.workload));
  return train(std::move(job));
}

// [anchor: from-argv]
int run_checked(const AnyLesson& lesson, Launch launch, int argc, char** argv) {
  const LessonInfo& info = lesson.info;
  const Program program{.name = info.name,
                        .question = info.question,
                        .workload_file = info.workload,
                        .extra = info.flags,
                        .one_rank = info.one_rank_only,
                        .ranks_flag = info.ranks_flag};
  CommandLine line = parse_command_line(argc, argv, program);
  if (line.help) return print_once(launch, help_text(program, lesson.options));
  if (line.version) return print_once(launch, describe_versions());
  ResolvedConfig config = resolve(line.sources, lesson.options);
  if (!line.explain.empty()) {
    const FieldSet workload = workload_fields().bind(config.workload);
    return print_once(launch, explain(line.explain, {&workload, &lesson.options}, config.origins));
  }
  const std::int64_t world = line.plan && line.world > 0 ? line.world : to_int(launch.world);
  const DeviceChoice computes_on = run_device(config.workload, line.device);
  Prepared run = prepare(program, lesson.plans, line, std::move(config), world, computes_on);
  if (line.plan) {
    if (launch.rank == Rank{0}) print_plan(lesson, line, run);
    if (!line.strict) return 0;
    line.plan = false;
    if (line.world > 0)
      launch = {world > 1 ? "--world" : "none", Rank{0}, WorldSize{static_cast<int>(world)}, Rank{0},
                WorldSize{static_cast<int>(world)}};
    run = prepare(program, lesson.plans, line, std::move(run.config), world, computes_on);
  }
  const RunShape shape = shape_of_run(run.shape, line, launch);
  return run_job({lesson, launch, line, run.batch, run.config.note,
                  fmt::format("{}", fmt::join(argv, argv + argc, " ")), shape,
                  run_plans_of(lesson.plans, shape, line.checkpoints)});
}

// This process's position among the ranks, which all find the same error, even if the launcher's variables
// contradict each other.
int place_in_line() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  return 0;
}

constexpr unsigned kOthersSpeak = 5;  // in seconds

// Every rank finds the same error; the first one prints it, and the launcher ends the others. A rank that is
// still alive some seconds later found an error of its own.
int report(ExitCode code, const std::string& text) {
  const int place = place_in_line();
  if (place > 0) std::this_thread::sleep_for(std::chrono::seconds(kOthersSpeak));
  std::cout.flush();
  say_error((place > 0 ? "rank " + std::to_string(place) + ": " : "") + text);
  leave_sign("spoke", process_environment());
  return static_cast<int>(code);
}

// run.sh uses this to test whether mpirun can start the ranks: they meet and end.
int only_meet(const Launch& launch) {
  Ledger ledger(at::Device(at::kCPU));
  const World world(launch, ledger, {});
  return 0;
}

int run_reported(const AnyLesson& lesson, int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // writing past `ulimit -f` then fails with an error instead
  try {
    leave_sign("started", process_environment());
    // The log has no colours: under mpirun every rank's stdout is a terminal, even if a file gets the output.
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::stdout_sink_mt>()));
    const Launch launch = detect_launch(process_environment());
    // A rank dies with its launcher, so that no orphan continues.
    if (launch.launched()) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_cut_off_patience(place_in_line() > 0 ? kOthersSpeak : 0);
    if (process_environment()("STAGECRAFT_ONLY_MEET")) return only_meet(launch);
    const int code = run_checked(lesson, launch, argc, argv);
    std::cout.flush();
    if (code != 0 || std::cout) return code;
    return report(ExitCode::cannot_write, "standard output: it cannot be written\n  fix: see where it goes");
  } catch (const InputError& error) {
    return report(error.code(), error.what());
  } catch (const std::exception& error) {
    return report(ExitCode::claim, error.what());
  }
}

}  // namespace

// LibTorch frees its operators one by one when a process ends, which takes a fifth of a short run; the kernel
// frees all at once. Where CUDA's driver is loaded profilers write at the end, and it comes in the usual way.
int run(const AnyLesson& lesson, int argc, char** argv) {
  const int code = run_reported(lesson, argc, argv);
  if (::dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY) != nullptr) return code;
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace sc::detail

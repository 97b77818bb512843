#include "common/run/resume.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "common/base/check.h"
#include "common/comm/gather_text.h"
#include "common/config/other_names.h"
#include "common/config/workload_table.h"
#include "common/input/printable.h"
#include "common/run/run_files.h"
#include "common/storage/checkpoint/generations.h"
#include "common/storage/mapped_file.h"

namespace sc::detail {

Path checkpoints_dir(const TrainJob& job) {
  const std::string& named = job.line.checkpoints.dir;
  return named.empty() ? Path("runs") / job.lesson.info.name / "checkpoints" : Path(named);
}

checkpoint::DataFingerprint fingerprint_of(const Path& tokens) {
  const MappedFile file(tokens);
  return {static_cast<std::int64_t>(file.bytes().size()), checkpoint::sum_of(file.bytes())};
}

std::string text_without_fix(const InputError& error) { return error.where() + ": " + error.message(); }

Position position_of(const StepScalars& scalars, std::int64_t step, std::int64_t skips_in_a_row) {
  Position position{.step = step,
                    .updates = scalars.step.item<std::int64_t>(),
                    .scaler = {},
                    .skips_in_a_row = skips_in_a_row};
  if (scalars.loss_scale.defined()) {
    const at::Tensor state = scalars.scaler_state.cpu();
    position.scaler = {scalars.loss_scale.item<float>(), state[0].item<std::int64_t>(),
                       state[1].item<std::int64_t>()};
  }
  return position;
}

void restore_scalars(const checkpoint::Manifest& from, const StepScalars& scalars) {
  at::Tensor step = scalars.step, scale = scalars.loss_scale, state = scalars.scaler_state;
  step.fill_(from.updates);
  if (!scale.defined()) return;
  scale.fill_(from.scaler.scale);
  state[0].fill_(from.scaler.good_steps);
  state[1].fill_(from.scaler.overflows);
}

std::unique_ptr<checkpoint::Reader> open_checkpoint(const TrainJob& job, Communicator& comm) {
  // `ops` is static because the returned reader keeps a reference to it.
  static const std::unique_ptr<FileOps> ops = posix_file_ops();
  const std::string& asked = job.line.checkpoints.resume;
  const Path dir = asked == "latest" ? checkpoints_dir(job) : Path(asked);
  const bool one = checkpoint::is_checkpoint(*ops, dir);
  std::vector<std::int64_t> steps;
  if (comm.rank() == Rank{0} && !one)
    for (const checkpoint::Generation& generation : checkpoint::generations(*ops, dir))
      steps.push_back(generation.step);
  steps = values_of_bytes<std::int64_t>(broadcast_string(comm, bytes_of_values(steps)));
  std::vector<Path> found;
  if (one) found.push_back(dir);
  for (const std::int64_t step : steps) found.push_back(dir / checkpoint::generation_name(step));
  if (found.empty())
    throw InputError(ExitCode::data, "--resume " + asked, fmt::format("no checkpoint in {}", dir.string()),
                     "leave --resume out to begin, or name where they are: --checkpoints DIR");
  // [anchor: pass-it-over]
  // All ranks take the same checkpoint: the newest in which none of them finds damage.
  std::string refused;
  for (auto path = found.rbegin(); path != found.rend(); ++path) {
    std::unique_ptr<checkpoint::Reader> reader;
    std::string error;
    try {
      reader = std::make_unique<checkpoint::Reader>(*ops, *path);
      reader->verify(to_int(comm.rank()), to_int(comm.size()));
      (void)workload_of_texts(reader->manifest().workload, (*path / checkpoint::kManifestName).string());
    } catch (const InputError& damaged) {
      error = text_without_fix(damaged);
    } catch (const std::exception& unforeseen) {  // out of memory, for example: the other ranks must not wait
      error = shown(path->string(), 4096) + ": " + shown(unforeseen.what());
    }
    refused = said_by_all(comm, error);
    if (refused.empty()) return reader;
    if (comm.rank() == Rank{0} && !one) spdlog::warn("{} is passed over: {}", path->string(), refused);
  }
  throw InputError(ExitCode::data, "--resume " + asked,
                   (one ? "it is damaged: " : "none is whole: ") + refused,
                   one ? "an older one" : "begin again without --resume");
}

void refuse_other_workload(const TrainJob& job, const checkpoint::Manifest& manifest) {
  const std::string& asked = job.line.checkpoints.resume;
  const std::set<std::string> may_differ(job.line.checkpoints.may_differ.begin(),
                                         job.line.checkpoints.may_differ.end());
  const std::map<std::string, std::string> now = values_of(job.shape.workload);
  for (const std::string& key : may_differ) {
    if (!now.contains(key))
      throw InputError(ExitCode::usage, "--resume-with " + key, "no key of the workload has that name",
                       newer_for(key).empty()
                           ? "--explain all lists them; the strategy's own keys may differ anyway"
                           : newer_for(key));
  }
  const std::map<std::string, std::string> before = in_todays_keys(manifest.workload);
  std::string differ, names;
  for (const auto& [key, value] : now) {
    const auto then = before.find(key);
    if ((then != before.end() && then->second == value) || may_differ.contains(key)) continue;
    differ += fmt::format("{}{} is {} now and was {}", differ.empty() ? "" : ", ", key, value,
                          then == before.end() ? "not there" : shown(then->second));
    names += (names.empty() ? "" : ",") + key;
  }
  if (!differ.empty())
    throw InputError(ExitCode::usage, "--resume " + asked, "the checkpoint is of another workload: " + differ,
                     "the same workload; or, if that is meant, --resume-with " + names);
  if (manifest.step > job.shape.workload.steps)
    throw InputError(
        ExitCode::usage, "--resume " + asked,
        fmt::format("{} steps are done, and the run has {}", manifest.step, job.shape.workload.steps),
        fmt::format("--steps {} or more, with --resume-with steps", manifest.step));
}

}  // namespace sc::detail

// What a run prints at its start and end: on the default screen, in full (--verbose), in brief (--brief).
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "common/base/text.h"
#include "common/gpu/gpu_check.h"
#include "common/input/printable.h"
#include "common/records/ending.h"
#include "common/records/progress.h"
#include "common/records/screen.h"
#include "common/run/describe.h"
#include "common/run/resume.h"
#include "common/run/run_shape.h"
#include "common/run/screen_text.h"
#include "common/run/trainer.h"

namespace sc::detail {
namespace {

std::string note_lines(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes)
    if (!note.empty()) text += fmt::format("  note     {}\n", shown(note, 4096));
  return text;
}

std::string first_to_last(const std::vector<StepRecord>& steps) {
  return steps.empty() ? "no step was trained"
                       : fmt::format("{:.4f} -> {:.4f}", steps.front().loss, steps.back().loss);
}

std::string in_nats(const std::vector<StepRecord>& steps, std::optional<double> validation,
                    const std::string& part = "") {
  std::string text = (steps.empty() ? "" : "loss ") + first_to_last(steps);
  if (validation) text += fmt::format(", validation {:.4f}{}", *validation, part);
  return steps.empty() && !validation ? text : text + " nats a token";
}

}  // namespace

void Trainer::announce() const {
  const bool all = job_.line.verbose, trains = job_.first_step < shape_.workload.steps;
  if (!job_.speaks() || job_.line.brief) return;
  const Look look = look_here();
  const std::string gpu = on_.gpu == nullptr ? "" : describe_gpu(on_.gpu->facts(), shape_, job_.graph()),
                    warning = on_.gpu == nullptr ? "" : warn_of_attention(on_.gpu->facts(), shape_);
  const std::string notes =
      note_lines({job_.note}) + note_lines(data_.notes()) + (test_ ? note_lines(test_->notes()) : "") +
      note_lines(what_never_comes(job_.line, shape_.workload, job_.plans.facts, job_.first_step));
  if (all) {
    std::cout << describe_run(job_.lesson.info.name, shape_, job_.batch, job_.launch.launcher, gpu) << warning
              << fmt::format("  data     {}: {} training rows, {:.1f} steps an epoch\n",
                             shown(shape_.workload.data.source, 4096), human_count(data_.train().count()),
                             sampler_.steps_per_epoch())
              << notes
              << format_plan_table(exact_plans_of(job_.lesson.plans, shape_, job_.plans.world),
                                   shape_.mesh.world())
              << job_.lesson.plans.predict(shape_);
  } else {
    std::cout << format_header(job_.lesson, shape_, job_.batch)
              << (gpu.empty() ? "" : "  GPU   " + gpu + "\n" + warning) << notes
              << format_predicted(job_.plans.world, look);
  }
  std::cout << says_of_checkpoints() << (!all && trains ? heading("TRAINING", look) + "\n" : "")
            << std::flush;
}

std::string Trainer::says_of_checkpoints() const {
  std::string text;
  if (on_.resume != nullptr) {
    const checkpoint::Manifest& from = on_.resume->manifest();
    text += fmt::format("resumes after {} steps: {}, by {} on {} rank{}\n", from.step,
                        printable(on_.resume->path().string()), shown(from.lesson), from.world,
                        from.world == 1 ? "" : "s") +
            goes_on_.says;
  }
  const CheckpointFlags& flags = job_.line.checkpoints;
  if (!saver_ || flags.every > shape_.workload.steps) return text;
  text += fmt::format("a checkpoint every {} steps in {}", flags.every,
                      printable(checkpoints_dir(job_).string()));
  if (flags.async)
    text += fmt::format(", from a copy of {} in a rank's host memory",
                        human_bytes(job_.plans.own.memory.of(Purpose::checkpoint, Place::host) +
                                    job_.plans.own.memory.of(Purpose::checkpoint, Place::pinned)));
  return text + "\n";
}

// How much of a named validation text was evaluated, because a reader expects all of it.
std::string Trainer::part_of_validation() const {
  const std::int64_t used = sampler_.validation_rows();
  const std::int64_t all = data_.validation().count();
  if (!data_.validation_path() || used >= all) return "";
  return fmt::format(" ({} of {} rows)", human_count(used), human_count(all));
}

void Trainer::say_briefly(const Path& record) const {
  std::cout << format_brief(job_.plans.own.memory, job_.plans.own.operations, claims_.measured(), shape_.rank)
            << "loss  " << first_to_last(observer_.steps())
            << (known_.validation_loss ? fmt::format(", validation {:.4f}", *known_.validation_loss)
                                       : std::string())
            << (known_.test ? fmt::format(", test {:.4f}", known_.test->loss) : std::string())
            << "; record: " << printable(record.string()) << std::endl;
}

void Trainer::say_the_end(const Path& record) const {
  if (job_.line.brief) return say_briefly(record);
  if (job_.line.verbose) return say_all(record);
  const Look look = look_here();
  std::cout << heading("MEASURED", look) << "\n" << checks(look) << losses();
  if (known_.timetable) {
    std::cout << format_timelines(*known_.timetable) << format_ages(known_.timetable->versions);
    const bool paced = std::ranges::find(known_.timetable->rows, "paced", &Timetable::Row::name) !=
                       known_.timetable->rows.end();
    if (shape_.device == DeviceKind::cpu && !paced)
      std::cout << format_crowd(to_int(job_.launch.local_world), describe_hardware().cores,
                                job_.lesson.options.find("pace") != nullptr);
  }
  std::cout << written_ << (known_.profile ? format_profile(*known_.profile) : "")
            << (job_.other ? format_comparison(records_.record(), *job_.other) : "");
  std::cout << heading("LOOK", look) << "  "
            << printable((records_.page().empty() ? record : records_.page()).string()) << "\n";
  if (!records_.trace().empty()) std::cout << "      " << printable(records_.trace().string()) << "\n";
  if (const std::string next = format_next(job_, record.string()); !next.empty())
    std::cout << heading("NEXT", look) << "  " << next << "\n";
  std::cout << std::flush;
}

std::string Trainer::checks(Look look) const {
  if (observer_.steps().empty()) return "  nothing was trained, and so no claim was checked\n";
  if (claims_.measured() == nullptr) return "  " + claims_.report();
  return format_checks(job_.plans.own, shape_.rank, claims_.allocator(),
                       to_int(shape_.mesh.world()) > 1 ? strategy_->replica_checks() : 0, look);
}

std::string Trainer::counted() const {
  std::string text;
  for (const auto& [what, number] : known_.counts)
    text += fmt::format("{}{} {}", text.empty() ? "  " : ", ", human_count(number), what);
  return text.empty() ? text : text + "\n";
}

std::string Trainer::losses() const {
  const std::vector<StepRecord>& steps = observer_.steps();
  std::string text = "  " + in_nats(steps, known_.validation_loss, part_of_validation()) + ", " +
                     human_seconds(seconds_since(began_)) + "\n" + counted();
  if (known_.test)
    text += fmt::format("  test {:.4f}, perplexity {:.4f} ({}, {} rows)\n", known_.test->loss,
                        std::exp(known_.test->loss), shown(known_.test->text.file),
                        human_count(known_.test->rows));
  if (const std::int64_t skipped = skipped_updates(steps); skipped > 0)
    text += fmt::format("  {} updates skipped: their gradient was not finite\n", skipped);
  return text;
}

void Trainer::say_all(const Path& record) const {
  const std::vector<StepRecord>& steps = observer_.steps();
  std::cout << "\n"
            << in_nats(steps, known_.validation_loss) << ", " << human_seconds(seconds_since(began_)) << "\n"
            << format_rates(steps, shape_.workload.batch.sequence, sampler_.steps_per_epoch());
  if (known_.validation_loss)
    std::cout << fmt::format("perplexity {:.4f} on the validation text{}", std::exp(*known_.validation_loss),
                             part_of_validation());
  if (known_.test)
    std::cout << fmt::format("{}{:.4f} on {} ({} rows, loss {:.6f})",
                             known_.validation_loss ? ", " : "perplexity ", std::exp(known_.test->loss),
                             known_.test->text.file, human_count(known_.test->rows), known_.test->loss);
  if (known_.validation_loss || known_.test) std::cout << "\n";
  if (const std::int64_t skipped = skipped_updates(steps); skipped > 0)
    std::cout << skipped << " updates skipped: their gradient was not finite\n";
  std::cout << counted() << "\n"
            << (steps.empty() ? "nothing was trained, and so no claim was checked\n" : claims_.report());
  if (known_.timetable) std::cout << format_timetable(*known_.timetable);
  if (known_.profile) std::cout << format_profile(*known_.profile);
  if (job_.other) std::cout << "\n" << format_comparison(records_.record(), *job_.other);
  if (!records_.trace().empty()) {
    std::cout << "trace: " << records_.trace().string() << " (the first " << kTracedSteps << " steps"
              << (on_.gpu != nullptr ? "; waits and compute at the GPU's times" : "") << ")\n";
  }
  std::cout << "record: " << record.string() << std::endl;
}

}  // namespace sc::detail

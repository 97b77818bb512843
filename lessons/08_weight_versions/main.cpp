#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "weight_versions.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::WeightVersions>(
      {.name = "08_weight_versions",
       .question = "What if no stage ever waits for the others, and each keeps older weights instead?",
       .does = "no stage waits for the others; each keeps older weights instead",
       .workload = "configs/tiny_untied.json",
       .flags = {{"pace", "FILE", "every action takes what pipedream's costs file says, in seconds", "pace"},
                 {"link-ms", "MS", "every message arrives so much later", "link_ms"},
                 {"costs", "FILE", "predicts a step's time from pipedream's costs file, in seconds", "costs"},
                 {"profile-in", "FILE", "pipedream's profile of the layers, for a balanced split",
                  "profile_in"}},
       .next = {"09_checkpoint_and_faults", "a run that loses a rank, and goes on", /*compares=*/false},
       .strategies = sc::lesson_plans()},
      argc, argv);
}

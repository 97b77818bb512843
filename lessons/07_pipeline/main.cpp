#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "pipeline.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Pipeline>(
      {.name = "07_pipeline",
       .question = "What if each rank holds a few layers, and micro-batches flow through them?",
       .does = "each holds a few layers, and micro-batches flow through them",
       .flags = {{"pace", "FILE", "every action takes what pipedream's costs file says, in seconds", "pace"},
                 {"link-ms", "MS", "every message arrives so much later", "link_ms"},
                 {"costs", "FILE", "predicts a step's time from pipedream's costs file, in seconds", "costs"},
                 {"profile-in", "FILE", "pipedream's profile of the layers, for a balanced split",
                  "profile_in"}},
       .next = {"08_weight_versions", "no stage waits for the others", /*compares=*/false},
       .strategies = sc::lesson_plans()},
      argc, argv);
}

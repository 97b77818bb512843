#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "offload.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Offload>(
      {.name = "05_offload",
       .question = "What if the optimizer's states lie in the host's memory, and the host updates them?",
       .flags = {{"adam-threads", "N", "threads of a rank for AdamW on the host", "adam_threads"},
                 {"link-mbps", "MB/s", "copies between device and host are no faster, on the CPU",
                  "link_mbps"}},
       .strategies = sc::lesson_plans()},
      argc, argv);
}

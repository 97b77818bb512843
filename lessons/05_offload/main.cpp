#include "common/run/run_lesson.h"
#include "lessons/plans.h"
#include "offload.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Offload>(
      {.name = "05_offload",
       .question = "What if the optimizer's states lie in the host's memory, and the host updates them?",
       .does = "the optimizer's state lies in the host's memory, and the host updates it",
       .flags = {{"adam-threads", "N", "threads of a rank for AdamW on the host", "adam_threads"},
                 {"link-mbps", "MB/s", "copies between device and host are no faster, on the CPU",
                  "link_mbps"}},
       .next = {"06_infinity", "same loss, the optimizer's state on a disk", true, {"update=delayed"}},
       .strategies = sc::lesson_plans()},
      argc, argv);
}

#include "common/run/run_lesson.h"
#include "infinity.h"
#include "lessons/plans.h"

int main(int argc, char** argv) {
  return sc::run_lesson<sc::Infinity>(
      {.name = "06_infinity",
       .question =
           "What if the optimizer's states lie on a disk, and stream through a small window of host memory?",
       .does = "the optimizer's state lies on a disk and streams through a window of host memory",
       .flags = {{"disk", "DIR", "where the states lie; nothing is left there", "disk"},
                 {"disk-mbps", "MB/s", "the disk is no faster", "disk_mbps"},
                 {"adam-threads", "N", "threads of a rank for AdamW on the host", "adam_threads"},
                 {"link-mbps", "MB/s", "copies between device and host are no faster, on the CPU",
                  "link_mbps"}},
       .next = {"07_pipeline", "each rank holds a few layers"},
       .strategies = sc::lesson_plans()},
      argc, argv);
}

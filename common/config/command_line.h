// The command line that every lesson shares. No torch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/command_words.h"
#include "common/base/types.h"
#include "common/config/field_table.h"
#include "common/config/resolve.h"
#include "common/config/validate.h"

namespace sc {

struct CommandLine;

/// One flag of a program. A flag with a `key` is short for --set key=value.
struct Flag {
  using Apply = std::function<void(const Given&, CommandLine&)>;
  std::string name;      // "virtual-ranks", without dashes
  std::string argument;  // the argument's name in --help, e.g. "W"; empty for a switch
  std::string doc;
  std::string key = {};   // the strategy's key, e.g. "virtual_ranks"; every flag of a lesson has one
  Apply apply = {};       // stores the value of a flag without a key
  bool of_a_run = false;  // refused with --plan, where it has no effect
};

struct Program {
  std::string name;                                 // the lesson's folder
  std::string question;                             // the lesson's question, one sentence for --help
  std::string workload_file = "configs/tiny.json";  // used without --workload
  std::string strategy_file = {};  // used without --strategy: the lesson's config.json, or empty
  std::vector<Flag> extra = {};    // the lesson's own flags
  bool one_rank = false;           // refuse -n above 1
  std::string ranks_flag = "-n";   // the flag that changes the number of ranks that share a step
};

/// The kernels of a GPU: ATen's alone, our own where they are faster, or only deterministic ones.
enum class OpsChoice { aten, fused, deterministic };
/// What carries messages and sums of activations between GPUs of one host: copy engines or NCCL.
enum class Transport { copies, nccl };

struct CheckpointFlags {
  std::int64_t every = 0;  // steps between two saves; 0: none
  std::int64_t keep = 2;   // newest checkpoints kept
  std::string dir;         // directory of the checkpoints; empty: runs/<lesson>/checkpoints
  bool async = true;       // write from a copy while training goes on
  std::string resume;      // a checkpoint, a directory of them, or "latest"; empty: start at step 0
  std::vector<std::string> may_differ;  // keys that may differ from the checkpoint's
  std::int64_t crash_at = 0;  // test hook: rank 0 is killed at this file operation of its saves; 0: never
};

struct EvaluationFlags {
  std::int64_t every = 0;  // steps between two evaluations; 0: at the end only
  // Text files; without `validation` the training data's tail is evaluated, without `test` nothing.
  std::string validation, test;
  std::optional<std::int64_t> sample;  // tokens to generate after training; 0: none; unset: the run decides
  std::optional<std::string> prompt;   // beginning of the sample; unset: that of the validation text
  std::optional<double> temperature;   // of the sample; unset: 1
};

/// The parsed command line. Only its syntax has been checked; resolve() checks keys and files. A member whose
/// flag was not given keeps its default.
struct CommandLine {
  ConfigSources sources;  // --workload, --strategy, --set, and flags that stand for a key
  DeviceChoice device = DeviceChoice::automatic;
  std::string out;                     // directory of the records; empty: runs/<lesson>/<time>
  std::string compare;                 // record.json of another run; empty: none
  bool plan = false;                   // --plan: print what a run would hold and send, then exit
  bool json = false;                   // print the plan as JSON
  bool strict = false;                 // with --plan: refuse what a run would refuse
  std::int64_t world = 0;              // --world of a plan; 0: the ranks that were started
  bool trace = false;                  // write trace.json
  bool page = true;                    // write page.html
  std::optional<OpsChoice> ops;        // kernels of a GPU; unset: fused
  std::optional<bool> graph;           // capture a GPU's step once and replay it; unset: on
  std::optional<Transport> transport;  // between GPUs of one host; unset: copies
  bool profile = false;                // measure GPU time by class of operation
  bool brief = false;                  // print three lines in all
  bool verbose = false;                // print every buffer and every operation
  bool share_gpu = false;              // allow several ranks on one GPU
  std::optional<Bytes> memory_cap;     // per rank, on its device
  std::optional<Bytes> host_cap;       // per rank, in host memory besides the device's, pinned or not
  std::optional<Bytes> disk_cap;       // per rank, on disk
  std::string init;  // safetensors file with the initial weights; empty: random from the seed
  CheckpointFlags checkpoints;
  std::string save;  // safetensors file for the trained weights; empty: none
  EvaluationFlags evaluation;
  std::string explain;           // a key, a group or "all"; empty: not asked
  double watchdog_seconds = 30;  // the run ends if an operation takes longer
  std::string inject;            // "kind@rank,step", read by watch/fault.h; empty: none
  int threads = 0;               // intra-op threads of a rank; 0: the default given in --help
  bool help = false, version = false;
};

/// Parses and checks a lesson's command line.
///   Errors  InputError(usage): an unknown flag (with the nearest known one), a missing, surplus or malformed
///           argument, a flag given twice with different values.
CommandLine parse_command_line(int argc, const char* const* argv, const Program& program);

/// The text of --help: usage, flags, the strategy's keys with their defaults, exit codes, two examples.
std::string help_text(const Program& program, const FieldSet& strategy);

}  // namespace sc

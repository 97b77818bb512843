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

/// One flag. A flag with a `key` is short for --set key=value.
struct Flag {
  using Apply = std::function<void(const Given&, CommandLine&)>;
  std::string name;      // "virtual-ranks", without dashes
  std::string argument;  // "W" in the help; empty: a switch
  std::string doc;
  std::string key = {};   // "virtual_ranks"; every flag that a lesson adds has one
  Apply apply = {};       // without a key: what it does to the command line
  bool of_a_run = false;  // --plan alone has no use for it
};

/// What --help says about a program, and the flags that it alone has.
struct Program {
  std::string name;                                 // of the lesson's folder
  std::string question;                             // one sentence
  std::string workload_file = "configs/tiny.json";  // without --workload
  std::string strategy_file = {};  // without --strategy: the lesson's config.json; may be empty
  std::vector<Flag> extra = {};    // the lesson's own
  bool one_rank = false;           // -n above 1 is refused
  std::string ranks_flag = "-n";   // what changes the number of ranks that share a step
};

/// Who computes on a GPU: own kernels where they are faster, or ATen alone.
enum class OpsChoice { aten, fused, deterministic };
/// What carries messages and sums of activations between GPUs of one host.
enum class Transport { copies, nccl };

/// What a run saves while it trains, and what it goes on from.
struct CheckpointFlags {
  std::int64_t every = 0;  // steps; 0: never
  std::int64_t keep = 2;   // so many of the newest
  std::string dir;         // of them all; empty: runs/<lesson>/checkpoints
  bool async = true;       // written while training goes on, from a copy
  std::string resume;      // a checkpoint, a directory of them, or "latest"; empty: from the beginning
  std::vector<std::string> may_differ;  // keys that need not be as they were
  std::int64_t crash_at = 0;            // rank 0 is killed at this file operation of its saves; 0: never
};

/// What a run evaluates besides the tail of its data, and the text it makes.
struct EvaluationFlags {
  std::int64_t every = 0;        // steps between two evaluations; 0: at the end only
  std::string validation, test;  // files; empty: the tail of the data, none
  std::optional<std::int64_t>
      sample;  // tokens of text that the trained model makes; 0: none; not asked: the run decides
  std::optional<std::string> prompt;  // of the sample; not asked: the beginning of the validation text
  std::optional<double> temperature;  // of the sample; not asked: 1
};

/// What was asked for, syntax checked; keys and files are looked at by resolve(). Without a flag the member
/// keeps its default.
struct CommandLine {
  ConfigSources sources;  // --workload --strategy --set, and the flags that stand for a key
  DeviceChoice device = DeviceChoice::automatic;
  std::string out;               // directory of the records; empty: runs/<lesson>/<time>
  std::string compare;           // record.json of another run; empty: none
  bool plan = false;             // --plan: print what a run would hold and send, and exit
  bool json = false;             // the plan for programs
  bool strict = false;           // and then refuse what a run would
  std::int64_t world = 0;        // --world of a plan; 0: the ranks that are there
  bool trace = false;            // write trace.json
  bool page = true;              // write page.html
  std::optional<OpsChoice> ops;  // of a GPU; not asked: fused
  std::optional<bool> graph;     // --graph on|off: a GPU's step is captured once and replayed; not asked: on
  std::optional<Transport> transport;  // between GPUs of one host; not asked: copies
  bool profile = false;                // time by class of operation, on a GPU
  bool brief = false;                  // three lines in all
  bool verbose = false;                // every buffer and every operation
  bool share_gpu = false;              // several ranks on one GPU
  std::optional<Bytes> memory_cap;     // bytes of a rank on its device
  std::optional<Bytes> host_cap;       // in the host's memory beside it, pinned or not
  std::optional<Bytes> disk_cap;       // on a disk
  std::string init;  // safetensors file with the initial weights; empty: random from the seed
  CheckpointFlags checkpoints;
  std::string save;  // safetensors file for the trained weights; empty: none
  EvaluationFlags evaluation;
  std::string explain;           // a key, a group or "all"; empty: not asked
  double watchdog_seconds = 30;  // an operation that takes longer ends the run
  std::string inject;            // "kind@rank,step", read by comm/fault.h; empty: none
  int threads = 0;               // intra-op threads of a rank; 0: the default of --help
  bool help = false, version = false;
};

///   Errors  InputError(usage): an unknown flag (with the one that is near), a missing, surplus or malformed
///           argument, a flag given twice with different values.
CommandLine parse_command_line(int argc, const char* const* argv, const Program& program);

/// Usage, flags, the strategy's keys with their defaults, exit codes, two examples.
std::string help_text(const Program& program, const FieldSet& strategy);

}  // namespace sc

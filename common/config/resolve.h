// From files and flags to one configuration, each value with the place it came from. No torch.
#pragma once

#include <string>
#include <vector>

#include "common/config/field_table.h"
#include "common/config/workload.h"

namespace sc {

/// One `--set key=value`, or a flag that stands for one (--steps 5: steps=5); `where` is the flag as typed.
struct Setting {
  std::string key, value, where;
};

struct ConfigSources {
  std::string workload_file;  // --workload; empty: the defaults of workload.h
  std::string strategy_file;  // --strategy, or the lesson's config.json; empty: the defaults of its options
  std::vector<Setting> settings;  // --set and its shorthands, in order
};

struct ResolvedConfig {
  Workload workload;
  Origins origins;        // of workload and strategy keys alike
  std::string note = {};  // what its owner should know of a file: a key that has another name now
};

/// Later wins: defaults, workload file, strategy file, --set. `strategy` holds the lesson's own keys, bound
/// to its options, which are written.
///   Errors  InputError(usage) with the place: what read_json refuses; an unknown key (with the one that is
///           near); a value out of range; a strategy's key in a workload file, or the reverse; two settings
///           of one key with different values.
ResolvedConfig resolve(const ConfigSources& sources, const FieldSet& strategy);

/// A workload file alone.
Workload load_workload(const std::string& path);

/// Where `key`'s value came from, or "the default of <key>".
std::string origin_of(const Origins& origins, const std::string& key);

/// Of several keys that contradict each other, the place to look at first: a flag's, else a file's.
std::string origin_of_any(const Origins& origins, const std::vector<std::string>& keys);

}  // namespace sc

// Merges files and flags into one configuration and keeps the origin of each value. No torch.
#pragma once

#include <string>
#include <vector>

#include "common/config/field_table.h"
#include "common/config/workload.h"

namespace sc {

/// One --set key=value, or a flag that stands for one: --steps 5 is steps=5. `where` is the flag as typed.
struct Setting {
  std::string key, value, where;
};

struct ConfigSources {
  std::string workload_file;  // --workload; empty: the defaults of workload.h
  std::string strategy_file;  // --strategy, or the lesson's config.json; empty: the defaults of its options
  std::vector<Setting> settings;  // --set and the flags that stand for it, in order
};

struct ResolvedConfig {
  Workload workload;
  Origins origins;        // of workload keys and strategy keys
  std::string note = {};  // a hint for the file's owner: a key that has another name now
};

/// Merges defaults, workload file, strategy file and --set; of two values of a key the later one wins.
/// `strategy` holds the lesson's own keys and writes to the options that it is bound to.
///   Errors  InputError(usage) with the place: whatever read_json refuses; an unknown key (with the nearest
///           known one); a value out of range; a strategy's key in a workload file, or the reverse; two
///           settings of one key with different values.
ResolvedConfig resolve(const ConfigSources& sources, const FieldSet& strategy);

/// Reads a workload file without a strategy or flags.
Workload load_workload(const std::string& path);

/// Where a key's value came from; "the default of <key>" if it was not set.
std::string origin_of(const Origins& origins, const std::string& key);

/// The origin to name when several keys contradict each other: a flag if there is one, otherwise a file.
std::string origin_of_any(const Origins& origins, const std::vector<std::string>& keys);

}  // namespace sc

// Flags that the subcommands share, and their meaning.
#pragma once

#include <cxxopts.hpp>
#include <string>
#include <vector>

#include "pipedream/command/command.h"
#include "pipedream/generate.h"
#include "pipedream/simulate.h"

namespace sc::pipedream {

/// The names of the flags that add_schedule() and add_costs() declare.
const std::vector<std::string>& schedule_flags();
const std::vector<std::string>& cost_flags();

/// A subcommand's flags: declares them, parses, and answers --help.
class Flags {
 public:
  Flags(const std::string& command, const std::string& what);

  /// `otherwise` is the flag's default; if it is empty there is none, and given() must be asked before
  /// text().
  void add(const std::string& names, const std::string& what, const std::string& otherwise = "");
  void add_switch(const std::string& name, const std::string& what);
  void add_shape(const std::string& batches);  // --stages --microbatches --chunks --batches --warmup
  void add_schedule();                         // the flags of add_shape(), and --schedule --versions --file
  void add_costs();                            // --forward ... --costs
  void add_colour();                           // --color

  /// Parses the arguments. True if --help was given: it has been printed, and the command is done. Throws
  /// InputError (usage).
  bool parse(const std::vector<std::string>& arguments, const Console& console);

  /// Throws InputError (usage) for a flag that has no effect: together with `name`, or without it.
  void refuse_beside(const std::string& name, const std::vector<std::string>& others) const;
  void refuse_without(const std::string& name, const std::vector<std::string>& others) const;

  [[nodiscard]] bool given(const std::string& name) const { return result_.count(name) > 0; }
  [[nodiscard]] bool on(const std::string& name) const { return result_[name].as<bool>(); }
  [[nodiscard]] std::string text(const std::string& name) const { return result_[name].as<std::string>(); }
  [[nodiscard]] int integer(const std::string& name) const;
  [[nodiscard]] double number(const std::string& name) const;

  /// The options for one family. Flags that were not given default to 1, or to 2 chunks for interleaved and 3
  /// batches for 2bw.
  [[nodiscard]] GenerateOptions shape(Family family) const;
  /// The schedule that --file or --schedule names; `generated` if it was made from `options`. Throws
  /// InputError (usage) also for a flag that has no effect on this schedule.
  [[nodiscard]] Schedule schedule(GenerateOptions& options, bool& generated) const;
  [[nodiscard]] Costs costs() const;
  [[nodiscard]] bool colour(const Console& console) const;

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what, const std::string& fix) const;

  std::string command_;
  cxxopts::Options options_;
  cxxopts::ParseResult result_;
};

}  // namespace sc::pipedream

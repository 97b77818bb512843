// Flags that the subcommands share, and what they mean.
#pragma once

#include <cxxopts.hpp>
#include <string>
#include <vector>

#include "pipedream/command/command.h"
#include "pipedream/generate.h"
#include "pipedream/simulate.h"

namespace sc::pipedream {

/// The names of the flags of add_schedule() and of add_costs().
const std::vector<std::string>& schedule_flags();
const std::vector<std::string>& cost_flags();

/// A subcommand's flags: declares them, parses, and answers --help.
class Flags {
 public:
  Flags(const std::string& command, const std::string& what);

  /// `otherwise` is the default; where it is empty the flag has none: ask given() before text().
  void add(const std::string& names, const std::string& what, const std::string& otherwise = "");
  void add_switch(const std::string& name, const std::string& what);
  void add_shape(const std::string& batches);  // --stages --microbatches --chunks --batches --warmup
  void add_schedule();                         // those, --schedule --versions --file
  void add_costs();                            // --forward ... --costs
  void add_colour();                           // --color

  /// True if --help was given: it has been printed and the command is done. Throws InputError (usage).
  bool parse(const std::vector<std::string>& arguments, const Console& console);

  /// Throw InputError (usage) where a flag was given that nothing would read: beside `name`, or without it.
  void refuse_beside(const std::string& name, const std::vector<std::string>& others) const;
  void refuse_without(const std::string& name, const std::vector<std::string>& others) const;

  [[nodiscard]] bool given(const std::string& name) const { return result_.count(name) > 0; }
  [[nodiscard]] bool on(const std::string& name) const { return result_[name].as<bool>(); }
  [[nodiscard]] std::string text(const std::string& name) const { return result_[name].as<std::string>(); }
  [[nodiscard]] int integer(const std::string& name) const;
  [[nodiscard]] double number(const std::string& name) const;

  /// What the shape flags say, for one family: chunks are 2 for interleaved, batches 3 for 2bw, else 1,
  /// unless given.
  [[nodiscard]] GenerateOptions shape(Family family) const;
  /// The schedule that --file or --schedule names. `generated`: `options` is what made it. Throws InputError
  /// (usage) also for a flag that this schedule does not read.
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

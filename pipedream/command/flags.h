// Flags that the subcommands share, and what they mean.
#pragma once

#include <cxxopts.hpp>
#include <string>
#include <vector>

#include "pipedream/command/command.h"
#include "pipedream/generate.h"
#include "pipedream/simulate.h"

namespace sc::pipedream {

/// A subcommand's flags: declares them, parses, and answers --help.
class Flags {
 public:
  Flags(const std::string& command, const std::string& what);

  void add(const std::string& names, const std::string& what, const std::string& otherwise);
  void add_switch(const std::string& name, const std::string& what);
  void add_shape();     // --stages --microbatches --chunks --batches
  void add_schedule();  // those, --schedule --versions --file
  void add_costs();     // --forward ... --costs
  void add_colour();    // --color

  /// True if --help was given: it has been printed and the command is done. Throws InputError (usage).
  bool parse(const std::vector<std::string>& arguments, const Console& console);

  [[nodiscard]] bool given(const std::string& name) const { return result_.count(name) > 0; }
  [[nodiscard]] bool on(const std::string& name) const { return result_[name].as<bool>(); }
  [[nodiscard]] std::string text(const std::string& name) const { return result_[name].as<std::string>(); }
  [[nodiscard]] int integer(const std::string& name) const;
  [[nodiscard]] double number(const std::string& name) const;

  /// What the shape flags say, for one family: chunks are 2 for interleaved, batches 3 for 2bw, else 1,
  /// unless given.
  [[nodiscard]] GenerateOptions shape(Family family) const;
  /// The schedule that --file or --schedule names; `options` (if there is a formula for it) is what made it.
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

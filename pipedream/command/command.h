// The command `pipedream`: one function for each subcommand. It reads its flags, prints to `out` and throws
// InputError.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace sc::pipedream {

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool colour = false;  // the meaning of --color auto
};

/// Runs main()'s argv. Returns the exit code: 0, 64 (flags), 65 (a file, or a schedule that breaks a rule),
/// 73 (cannot write).
int run_command(const std::vector<std::string>& arguments, const Console& console);

/// The subcommands; `arguments` begins with the subcommand's name. They return the exit code or throw
/// InputError.
int simulate_command(const std::vector<std::string>& arguments, const Console& console);
int check_command(const std::vector<std::string>& arguments, const Console& console);
int draw_command(const std::vector<std::string>& arguments, const Console& console);
int compare_command(const std::vector<std::string>& arguments, const Console& console);
int partition_command(const std::vector<std::string>& arguments, const Console& console);
int explain_command(const std::vector<std::string>& arguments, const Console& console);
int exercise_command(const std::vector<std::string>& arguments, const Console& console);

}  // namespace sc::pipedream

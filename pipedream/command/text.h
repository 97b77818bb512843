// Numbers and tables as the command prints them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sc::pipedream {

/// A number with up to `digits` digits after the point, without trailing zeros: "21", "0.5", "57.1".
std::string number_text(double value, int digits = 3);
/// A number of things: "1 stage", "4 stages".
std::string count_text(std::int64_t count, const std::string& what);
/// A share between 0 and 1 as a percentage: "57.1 %".
std::string percent_text(double share);
/// A share as percent_text() shows it, or "-" if there is none.
std::string share_text(std::optional<double> share);
/// A size in decimal units: "8.39 MB", "0 B".
std::string bytes_text(double bytes);
/// Columns separated by two blanks; the first is left-aligned, the others right-aligned; the first row is the
/// heading.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace sc::pipedream

#include "pipedream/command/text.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace sc::pipedream {

namespace {

std::string fixed(double value, int digits) {
  std::array<char, 400> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return buffer.data();
}

}  // namespace

std::string number_text(double value, int digits) {
  std::string text = fixed(value, digits);
  if (text.find('.') != std::string::npos) text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string count_text(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : what.ends_with("ch") ? "es" : "s");
}

std::string percent_text(double share) { return fixed(100 * share + 1e-9, 1) + " %"; }

std::string share_text(std::optional<double> share) { return share ? percent_text(*share) : "-"; }

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return number_text(bytes, 2) + " " + kUnits[unit];
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - row[i].size(), ' ');
      text += i == 0 ? row[i] + (row.size() > 1 ? blanks : "") : "  " + blanks + row[i];
    }
    text += '\n';
  }
  return text;
}

}  // namespace sc::pipedream

// Numbers and tables as text for people. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/types.h"

namespace sc {

std::string human_bytes(Bytes bytes);         // "1.50 MB": decimal units, as memory tables of the papers use
std::string human_count(std::int64_t count);  // "1,234,567"
std::string human_seconds(double seconds);    // "12 s", "3 min 05 s"
/// The candidate with the smallest edit distance to `word`, or "" if that is more than a third of the word's
/// length (2 for a short word) or the whole word.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);
/// SHA-256 (FIPS 180-4) as 64 lower-case hexadecimal digits.
std::string hex_sha256(std::string_view bytes);
/// Aligns rows of cells with blanks. The first row is the heading; numbers are right-aligned.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace sc

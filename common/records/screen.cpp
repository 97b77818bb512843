#include "common/records/screen.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "common/base/text.h"

namespace sc {
namespace {

constexpr std::int64_t kCells = 16;  // of the longest bar
constexpr std::size_t kLongestFormula = 24;
constexpr std::int64_t kColumns = 72;  // of a timeline

// A row of the screen's table, and the purposes whose bytes it adds.
struct Kind {
  const char* name;
  std::initializer_list<Purpose> purposes;
};
constexpr Kind kKinds[] = {{"parameters", {Purpose::parameters}},
                           {"gradients", {Purpose::gradients}},
                           {"optimizer", {Purpose::master, Purpose::momentum, Purpose::variance}},
                           {"older weights", {Purpose::stash}},
                           {"activations", {Purpose::activations}},
                           {"other", {Purpose::workspace, Purpose::communication, Purpose::checkpoint}}};

Bytes bytes_of_kind(const MemoryPlan& plan, const Kind& kind, Place place) {
  Bytes sum;
  for (const Purpose purpose : kind.purposes) sum += plan.of(purpose, place);
  return sum;
}

std::string formula_of(const MemoryPlan& plan, const Kind& kind) {
  std::vector<std::string> formulas;
  for (const Buffer& item : plan.items())
    if (item.place == Place::device && item.bytes().value() > 0 &&
        std::ranges::find(kind.purposes, item.purpose) != kind.purposes.end())
      formulas.push_back(item.formula());
  const std::string sum = sum_of_formulas(formulas);
  return sum.size() <= kLongestFormula ? sum : "";
}

// The kinds of bytes at a place, as "gradients, optimizer".
std::string kinds_at(const MemoryPlan& plan, Place place) {
  std::string text;
  for (const Kind& kind : kKinds)
    if (bytes_of_kind(plan, kind, place).value() > 0)
      text += (text.empty() ? "" : ", ") + std::string(kind.name);
  return text;
}

// The length of a bar in cells, if the longest bar shows `most`; at least one for anything above 0.
std::int64_t cells_of(Bytes bytes, Bytes most) {
  return bytes.value() == 0 ? 0 : std::max<std::int64_t>(1, bytes.value() * kCells / most.value());
}

struct Line {
  std::string name;
  Bytes bytes;
  bool bar = true;
  std::string more;
};

std::string text_of(const std::vector<Line>& lines, Look look) {
  std::size_t name = 0, number = 0;
  Bytes most(1);
  for (const Line& line : lines) {
    name = std::max(name, line.name.size());
    number = std::max(number, human_bytes(line.bytes).size());
    if (line.bar) most = std::max(most, line.bytes);
  }
  std::string text;
  for (const Line& line : lines) {
    const std::int64_t cells = line.bar ? cells_of(line.bytes, most) : 0;
    text += fmt::format("  {:<{}}  {:>{}}", line.name, name, human_bytes(line.bytes), number);
    if (cells > 0) text += "  " + bar(cells, 0, look);
    if (!line.more.empty())
      text += std::string(static_cast<std::size_t>(kCells - cells) + (cells > 0 ? 2 : 4), ' ') + line.more;
    text += "\n";
  }
  return text;
}

std::string counted(std::int64_t times, const std::string& what) {
  return fmt::format("{} {}{}", human_count(times), what, times == 1 ? "" : "s");
}

std::string counted(std::int64_t times, CommKind kind) {
  std::string name(kind == CommKind::recv ? "receive" : name_of(kind));
  std::ranges::replace(name, '_', '-');
  return counted(times, name);
}

const char* verb_of(Way way) { return way == Way::link ? "copied" : "read and written"; }

// The operations of a step in words, as "15 all-reduces, 2.53 MB sent".
std::string step_in_words(const CommPlan& plan, Rank rank) {
  std::map<CommKind, std::int64_t> messages;
  for (const auto& [op, times] : plan.count)
    if (way_of(op.kind) == Way::wire) messages[op.kind] += times;
  std::string text;
  for (const auto& [kind, times] : messages) text += counted(times, kind) + ", ";
  text += human_bytes(moved_bytes(plan, Way::wire, rank)) + " sent";
  for (const Way way : {Way::link, Way::disk})
    if (std::ranges::any_of(plan.count, [&](const auto& of) { return way_of(of.first.kind) == way; }))
      text += fmt::format(", {} {}", human_bytes(moved_bytes(plan, way, rank)), verb_of(way));
  return text + " per step";
}

std::string of_one(const RankPlan& plan, Look look) {
  const MemoryPlan& memory = plan.memory;
  std::vector<Line> lines;
  for (const Kind& kind : kKinds)
    if (const Bytes bytes = bytes_of_kind(memory, kind, Place::device); bytes.value() > 0)
      lines.push_back({kind.name, bytes, true, formula_of(memory, kind)});
  lines.push_back({"device", memory.total(), true, "all of the above"});
  const std::size_t of_device = lines.size();
  for (const Place place : {Place::pinned, Place::host, Place::disk})
    if (const Bytes bytes = memory.total(place); bytes.value() > 0)
      lines.push_back({std::string(name_of(place)), bytes, true, kinds_at(memory, place)});
  const bool alone = lines.size() == of_device;  // there are no bytes outside the device
  if (alone) lines.back() = {"total", memory.total(), false, ""};
  std::string text = text_of(lines, look);
  if (alone) text.pop_back();
  return text + (alone ? "     and " : "  and ") + step_in_words(plan.operations, Rank{0}) + "\n";
}

// One line per rank or set of equal ranks. Bars come last, because their cells may take several bytes.
std::string of_several(const std::vector<RankPlan>& ranks, Look look) {
  std::vector<std::vector<std::string>> rows = {{""}};
  Bytes most, sent;
  for (const RankPlan& plan : ranks) {
    rows.push_back({ranks_in_words(plan.ranks.all())});
    most = std::max(most, plan.memory.total());
    sent = std::max(sent, plan.sent());
  }
  const auto add = [&](const std::string& name, const auto& bytes_in) {
    const bool any =
        std::ranges::any_of(ranks, [&](const RankPlan& plan) { return bytes_in(plan.memory).value() > 0; });
    if (!any) return;
    rows[0].push_back(name);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      rows[i + 1].push_back(human_bytes(bytes_in(ranks[i].memory)));
  };
  for (const Kind& kind : kKinds)
    add(kind.name, [&](const MemoryPlan& plan) { return bytes_of_kind(plan, kind, Place::device); });
  add("total", [](const MemoryPlan& plan) { return plan.total(); });
  for (std::size_t i = 0; i < ranks.size(); ++i)
    rows[i + 1].push_back(bar(cells_of(ranks[i].memory.total(), most), 0, look));
  return table(rows) + fmt::format("  and at most {} sent by a rank per step\n", human_bytes(sent));
}

// The checked memory in words, as "18,164,048 bytes held, 8 purposes".
std::string held_in_words(const MemoryPlan& memory) {
  std::string text = human_count(memory.total().value()) + " bytes held";
  for (const Place place : {Place::pinned, Place::host, Place::disk})
    if (const Bytes bytes = memory.total(place); bytes.value() > 0)
      text += fmt::format(", {} {}", human_count(bytes.value()),
                          place == Place::pinned ? "pinned" : "on the " + std::string(name_of(place)));
  std::set<Purpose> purposes;
  for (const Buffer& item : memory.items())
    if (item.bytes().value() > 0) purposes.insert(item.purpose);
  return text + ", " + counted(std::ssize(purposes), "purpose");
}

// The checked operations in words, as "15 operations, 2,533,920 bytes sent".
std::string moved_in_words(const CommPlan& plan, Rank rank) {
  std::int64_t operations = 0;
  for (const auto& entry : plan.count) operations += entry.second;
  std::string text = counted(operations, "operation") + ", " +
                     human_count(moved_bytes(plan, Way::wire, rank).value()) + " bytes sent";
  for (const Way way : {Way::link, Way::disk})
    if (const Bytes bytes = moved_bytes(plan, way, rank); bytes.value() > 0)
      text += fmt::format(", {} {}", human_count(bytes.value()), verb_of(way));
  return text;
}

// For each column of a timeline of `seconds`, the letter of what the stage does for most of that time.
std::string drawn(const std::vector<Timetable::Span>& spans, double seconds, bool expected) {
  const double column = seconds / kColumns;
  std::string text(kColumns, '.');
  std::vector<double> most(kColumns, column / 2);
  for (const Timetable::Span& span : spans) {
    const double begin = expected ? span.expected_begin : span.begin,
                 end = expected ? span.expected_end : span.end;
    const auto last = std::min(kColumns, static_cast<std::int64_t>(std::ceil(end / column)));
    for (auto i = std::max<std::int64_t>(0, static_cast<std::int64_t>(begin / column)); i < last; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double covered = std::min(end, static_cast<double>(i + 1) * column) -
                             std::max(begin, static_cast<double>(i) * column);
      if (covered < most[at]) continue;
      most[at] = covered;
      text[at] = span.name.front();
    }
  }
  return text;
}

std::string drawn(const Timetable& timetable, double seconds, bool expected) {
  std::string text;
  for (std::size_t stage = 0; stage < timetable.ranks.size(); ++stage)
    text += fmt::format("    stage {}  {}\n", stage, drawn(timetable.ranks[stage], seconds, expected));
  return text;
}

// The letters that occur in a timeline, and their meaning.
std::string legend_of(const Timetable& timetable) {
  std::string text, letters;
  for (const std::vector<Timetable::Span>& spans : timetable.ranks)
    for (const Timetable::Span& span : spans) letters += span.name.front();
  for (const char* named :
       {"F forward", "B backward", "I backward of inputs", "W backward of weights", "s update"})
    if (letters.find(named[0]) != std::string::npos) text += (text.empty() ? "" : ", ") + std::string(named);
  return text;
}

// How many updates behind more than a twentieth of the micro-batches were; this leaves out the beginning.
std::string usual(const std::map<std::int64_t, std::int64_t>& counts) {
  std::int64_t all = 0;
  for (const auto& [age, count] : counts) all += count;
  std::string text;
  for (const auto& [age, count] : counts)
    if (20 * count > all) text += fmt::format("{}{}", text.empty() ? "" : " or ", age);
  return text;
}

}  // namespace

Look look_of(bool terminal, const Environment& variable) {
  if (!terminal) return {};
  const auto value = [&](const char* name) { return variable(name).value_or(""); };
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (locale.empty()) locale = value(name);
  for (char& c : locale) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return {.utf8 = locale.find("UTF-8") != std::string::npos || locale.find("UTF8") != std::string::npos,
          .colour = value("NO_COLOR").empty() && value("TERM") != "dumb"};
}

std::string bar(std::int64_t full, std::int64_t empty, Look look) {
  std::string text;
  for (std::int64_t i = 0; i < full; ++i) text += look.utf8 ? "\xe2\x96\x88" : "#";   // full block
  for (std::int64_t i = 0; i < empty; ++i) text += look.utf8 ? "\xe2\x96\x91" : "-";  // light shade
  return text;
}

std::string heading(const std::string& text, Look look) {
  return look.colour ? "\x1b[1m" + text + "\x1b[0m" : text;
}

std::string sum_of_formulas(const std::vector<std::string>& formulas) {
  if (formulas.size() == 1) return formulas.front();
  std::int64_t sum = 0;
  std::string of;
  for (const std::string& formula : formulas) {
    const std::size_t digits = std::min(formula.find_first_not_of("0123456789"), formula.size());
    const std::string rest = formula.substr(digits);
    if (digits == 0 || digits > 9 || rest.empty() || rest.find_first_of("+-") != std::string::npos) return "";
    if (!of.empty() && rest != of) return "";
    of = rest, sum += std::stoll(formula.substr(0, digits));
  }
  return of.empty() ? "" : std::to_string(sum) + of;
}

std::string format_predicted(const std::vector<RankPlan>& ranks, Look look) {
  const bool same =
      std::ranges::all_of(ranks, [&](const RankPlan& plan) { return plan.memory == ranks.front().memory; });
  return fmt::format("{}{:>{}}\n", heading("PREDICTED", look) + (same ? " for each rank" : " by rank"),
                     "(every buffer: --plan)", same ? 52 : 58) +
         (same ? of_one(ranks.front(), look) : of_several(ranks, look));
}

std::string format_checks(const RankPlan& plan, Rank rank, const std::optional<AllocatorCheck>& allocator,
                          std::int64_t replicas, Look look) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {held_in_words(plan.memory), "as predicted"}, {moved_in_words(plan.operations, rank), "as predicted"}};
  if (allocator)
    rows.emplace_back(fmt::format("{} bytes allocated on the GPU", human_count(allocator->peak.value())),
                      fmt::format("predicted: {}{}", allocator->at_most ? "at most " : "",
                                  human_count(allocator->predicted().value())));
  if (replicas > 0) rows.emplace_back("replicas equal bit for bit", counted(replicas, "check"));
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.first.size());
  std::string text;
  for (const auto& [what, said] : rows)
    text += fmt::format("  {}  {:<{}}   {}\n", look.colour ? "\x1b[32mok\x1b[0m" : "ok", what, width, said);
  return text;
}

std::string format_timelines(const Timetable& timetable) {
  double seconds = 0;
  for (const std::vector<Timetable::Span>& spans : timetable.ranks)
    for (const Timetable::Span& span : spans) seconds = std::max({seconds, span.end, span.expected_end});
  std::string text;
  for (const Timetable::Row& row : timetable.rows) {
    text += fmt::format("  {:<9}  {:>9.2f} ms  {:>4.1f} % idle  {}\n", row.name, 1e3 * row.seconds,
                        1e2 * row.idle, row.from);
    if (seconds > 0 && (row.name == "measured" || row.name == "simulated"))
      text += drawn(timetable, seconds, row.name == "simulated");
  }
  if (text.empty() || seconds <= 0) return text;
  return text + fmt::format("    {}, . idle; a column is {:.2f} ms{}\n", legend_of(timetable),
                            1e3 * seconds / kColumns,
                            timetable.length == "period" ? "; two steps are drawn" : "");
}

std::string format_ages(const std::vector<VersionsRead>& versions) {
  if (versions.empty()) return "";
  std::string forward, backward;
  for (const VersionsRead& rank : versions) {
    forward += fmt::format("{}{}", forward.empty() ? "" : ", ", usual(rank.forward));
    backward += fmt::format("{}{}", backward.empty() ? "" : ", ", usual(rank.backward));
  }
  const std::string ranks =
      versions.size() == 1 ? "rank 0" : fmt::format("ranks 0 to {}", versions.size() - 1);
  if (forward == backward)
    return fmt::format("  gradients are of weights {} updates old ({})\n", forward, ranks);
  return fmt::format("  gradients are of weights {} updates old in forward, {} in backward ({})\n", forward,
                     backward, ranks);
}

std::string format_crowd(std::int64_t ranks, std::int64_t cores, bool has_pace) {
  if (ranks <= cores) return "";
  return fmt::format("  {} ranks share {} core{}: stages wait for a core{}\n", ranks, cores,
                     cores == 1 ? "" : "s", has_pace ? "; --pace shows the schedule" : "");
}

}  // namespace sc

#include "common/records/page.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "common/records/json.h"

namespace sc {
namespace {

using At = OpSpan::Clock::time_point;
constexpr std::size_t kMostSteps = 2'000;  // rows of the curves

// Microseconds of the host's clock, to a tenth; rank 0 subtracts the page's beginning.
double us(At at) { return std::chrono::duration<double, std::micro>(at.time_since_epoch()).count(); }
Json us(const std::optional<At>& at) { return at ? Json(us(*at)) : Json(-1); }
double rounded(double us) { return std::round(us * 10) / 10; }

// The spans in which a rank computed, without the waits inside them.
Json spans_of(const RankMarks& marks) {
  Json rows = Json::array();
  const std::vector<Stretch> waits = waits_for(marks.operations);
  for (const Timeline::Span& span : marks.spans) {
    if (!span.computed) continue;
    const Computed& c = *span.computed;
    // An action of a pipeline covers all units of its part, so it names none.
    const int unit = span.name.empty() ? c.unit : kNoUnit;
    const auto add = [&](const char* lane, At begin, At end) {
      rows.push_back({lane, name_of(c.pass), unit, c.micro_batch, us(begin), us(end) - us(begin), span.name});
    };
    if (span.on_host) {
      add("host", span.begin, span.end);
    } else {
      for (const auto& [begin, end] : without({span.begin, span.end}, waits)) add("compute", begin, end);
    }
  }
  return rows;
}

Json operations_of(const RankMarks& marks) {
  Json rows = Json::array();
  if (marks.steps.empty()) return rows;
  const At end = marks.steps.back().end;
  for (const OpSpan& op : marks.operations) {
    // The host learns that a graph's operations were issued only when they have begun.
    const At issued = std::min(op.issued, op.began.value_or(op.issued));
    // Waits end with the marked steps, since the page shows no later time.
    const std::optional<At> wait_ended = op.wait_ended ? std::min(*op.wait_ended, end) : op.wait_ended;
    const bool waited = op.wait_began && wait_ended && *wait_ended > *op.wait_began;
    rows.push_back({name_of(op.op.kind), name_of(op.op.purpose), op.op.unit, op.peer ? to_int(*op.peer) : -1,
                    bytes_of(op.op.elements, op.op.dtype).value(), op.sent.value(), us(issued), us(op.began),
                    us(op.ended ? op.ended : op.wait_ended), waited ? us(op.wait_began) : Json(-1),
                    waited ? us(wait_ended) : Json(-1), op.step, to_int(op.op.ranks), op.op.stride});
  }
  return rows;
}

Json holds_of(const RankMarks& marks) {
  constexpr const char* kLetters[] = {"P", "G", "O", "A"};
  Json rows = Json::array();
  for (const ContentChange& h : marks.content_changes) {
    Json row = {us(h.at), kLetters[static_cast<int>(h.what)], h.unit, name_of(h.extent)};
    if (h.copies != 1) row.push_back(h.copies);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json buffers_of(const MemoryPlan& plan) {
  Json rows = Json::array();
  for (const Buffer& item : plan.items())
    rows.push_back(
        {name_of(item.purpose), name_of(item.place), item.name, item.formula(), item.bytes().value()});
  return rows;
}

Json limits_of(const Contents& contents) {
  const std::pair<const char*, std::optional<int>> all[] = {{"gradients_whole", contents.most_gradients},
                                                            {"parameters_whole", contents.most_parameters},
                                                            {"sets", contents.most_sets},
                                                            {"versions", contents.most_versions}};
  Json limits = Json::object();
  for (const auto& [name, most] : all)
    if (most) limits[name] = *most;
  if (contents.cut) limits["cut"] = 1;  // a rank never has more than its part of a unit
  return limits;
}

Json sizes_of(const ParamLayout& layout) {
  Json sizes = Json::array();
  for (int unit = 0; unit < layout.num_units(); ++unit)
    sizes.push_back(layout.unit(unit).sharded_size + layout.unit(unit).whole_size);
  return sizes;
}

// The columns of a record's steps, thinned to kMostSteps rows.
Json steps_of(const Json& record) {
  Json steps = Json::object();
  const Json& all = record["steps"];
  const std::size_t rows = all["step"].size(), every = (rows + kMostSteps - 1) / kMostSteps;
  for (const char* key : {"step", "loss", "lr", "grad_norm", "tokens", "seconds", "waited_seconds"}) {
    steps[key] = Json::array();
    for (std::size_t row = 0; row < rows; ++row)
      if (row % every == 0 || row + 1 == rows) steps[key].push_back(all[key][row]);
  }
  steps["validation"] = Json::array();
  if (const auto column = all.find("validation_loss"); column != all.end())
    for (std::size_t row = 0; row < rows; ++row)
      if ((*column)[row].is_number()) steps["validation"].push_back({all["step"][row], (*column)[row]});
  return steps;
}

// Makes a rank's times count from the page's beginning.
void shift_all(Json& rank, double origin) {
  const auto shift = [origin](Json& time) {
    if (time.get<double>() >= 0) time = rounded(time.get<double>() - origin);
  };
  for (Json& begin : rank["begins"]) shift(begin);
  for (Json& span : rank["spans"]) shift(span[4]), span[5] = rounded(span[5].get<double>());
  for (Json& op : rank["operations"])
    for (std::size_t i = 6; i <= 10; ++i) shift(op[i]);
  for (Json& hold : rank["holds"]) shift(hold[0]);
}

void keep_first_step(Json& marks) {
  const Json first = marks["steps"][0];
  marks["steps"] = {first};
  for (Json& rank : marks["ranks"]) {
    const double end = rank["begins"][1].get<double>();
    const auto erase = [](Json& rows, auto&& gone) {
      rows.erase(std::remove_if(rows.begin(), rows.end(), gone), rows.end());
    };
    rank["begins"].erase(2);
    erase(rank["spans"], [&](const Json& span) { return span[4].get<double>() >= end; });
    erase(rank["operations"], [&](const Json& op) { return op[11] != first; });
    erase(rank["holds"], [&](const Json& hold) { return hold[0].get<double>() >= end; });
  }
}

void leave_out(Json& marks) {
  std::string& left_out = marks["left_out"].get_ref<std::string&>();
  const auto too_many = [&] {
    std::size_t in_all = 0;
    for (const Json& rank : marks["ranks"]) in_all += rank["spans"].size() + rank["operations"].size();
    return in_all > kMostMarks;
  };
  if (too_many() && marks["steps"].size() > 1) {
    keep_first_step(marks);
    left_out += "One step is shown: two have more marks than a page has room for. ";
  }
  if (!too_many() || marks["ranks"].size() <= 3) return;
  const Json all = marks["ranks"];
  marks["ranks"] = {all.front(), all[1], all.back()};
  left_out += "The first, the second and the last rank are shown. ";
}

// Takes the marks out of the ranks' parts, and moves everything else to `data`.
Json marks_of(Json ranks, Json& data) {
  double origin = INFINITY;
  bool several_hosts = false;
  const Json& hosts = data["record"]["ranks"];
  for (const Json& host : hosts) several_hosts |= host["host"] != hosts[0]["host"];
  Json marks = {{"steps", ranks[0]["steps"]}, {"left_out", ""}, {"ranks", Json::array()}};
  for (Json& rank : ranks) {
    data["buffers"].push_back(rank["buffers"]);
    for (const auto& [name, most] : rank["limits"].items()) data["limits"][name].push_back(most);
    if (!rank["begins"].empty()) origin = std::min(origin, rank["begins"][0].get<double>());
  }
  if (!std::isfinite(origin)) return Json::object();
  if (const std::string why = ranks[0]["unknown"]; !why.empty())
    marks["left_out"] = "What is held at a moment is not shown: " + why + ". ";
  if (several_hosts)
    marks["left_out"].get_ref<std::string&>() += "Hosts have clocks of their own: compare times within one. ";
  for (Json& rank : ranks) {
    for (const char* key : {"steps", "buffers", "limits", "unknown"}) rank.erase(key);
    shift_all(rank, origin);
    for (Json& op : rank["operations"])  // the group is stored if it is neither the world nor one rank
      if (op[12] == data["record"]["world"] || op[12] == 1) op.erase(13), op.erase(12);
    marks["ranks"].push_back(std::move(rank));
  }
  leave_out(marks);
  return marks;
}

Json data_of(const Page& page) {
  Json record = Json::parse(line_of(page.record)),
       data = {{"format", 1}, {"lesson", page.record.lesson}, {"question", page.question}};
  for (const AxisName& of : kAxes) data["mesh"].push_back({of.name, page.mesh.size(of.axis)});
  data["steps"] = steps_of(record);
  record.erase("steps");
  if (record.contains("timetable")) record["timetable"].erase("ranks");
  data["record"] = std::move(record);
  const ParamLayout whole = page.layout.whole();
  const int last = whole.last_unit();
  for (int unit = 0; unit <= last; ++unit) {
    std::string name = unit_in_words(unit, last);
    if (name.starts_with("the ")) name.erase(0, 4);
    data["units"].push_back(name);
  }
  data["sizes"] = sizes_of(whole);
  data["buffers"] = Json::array();
  data["limits"] = Json::object();
  Json ranks = Json::array();
  for (const std::string& rank : page.ranks) ranks.push_back(Json::parse(rank));
  data["marks"] = marks_of(std::move(ranks), data);
  return data;
}

}  // namespace

std::string text_of(Rank rank, const RankMarks& marks, const Contents& contents, const MemoryPlan& plan,
                    const ParamLayout& layout) {
  Json json = {
      {"rank", to_int(rank)},     {"unknown", contents.unknown},   {"steps", Json::array()},
      {"begins", Json::array()},  {"spans", spans_of(marks)},      {"operations", operations_of(marks)},
      {"holds", holds_of(marks)}, {"limits", limits_of(contents)}, {"buffers", buffers_of(plan)}};
  for (const Trace::Step& step : marks.steps)
    json["steps"].push_back(step.step), json["begins"].push_back(us(step.begin));
  if (!marks.steps.empty()) json["begins"].push_back(us(marks.steps.back().end));
  if (contents.cut) json["parts"] = sizes_of(layout);
  return line_of(json);
}

std::string html_of(const Page& page, const std::string& frame) {
  const std::string slot = R"(<script id="data" type="application/json">{}</script>)";
  const std::size_t at = frame.find(slot);
  if (at == std::string::npos) throw std::runtime_error("the template has no place for data");
  const std::size_t hole = at + slot.find("{}");
  std::string html = frame.substr(0, hole);
  for (const char c : line_of(data_of(page))) html += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return html + frame.substr(hole + 2);
}

}  // namespace sc

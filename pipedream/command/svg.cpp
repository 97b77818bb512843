#include "pipedream/command/svg.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "pipedream/command/text.h"
#include "pipedream/command/timeline_text.h"

namespace sc::pipedream {

namespace {

constexpr double kWidth = 960;
constexpr double kLeft = 84;
constexpr double kTop = 64;
constexpr double kRow = 40;

// Fill colours on which black text has a contrast of at least 7 : 1.
constexpr std::array<const char*, 8> kPalette = {"#9cc2f5", "#f7c486", "#a9dcb3", "#f2a9b8",
                                                 "#cdb7f0", "#8fd6d6", "#e3d98a", "#d0d0d0"};

std::string n(double value) { return number_text(value, 2); }

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string open(double height, const std::string& title, const std::string& description) {
  const std::string size =
      n(kWidth) + "\" height=\"" + n(height) + "\" viewBox=\"0 0 " + n(kWidth) + ' ' + n(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + size +
         "\" role=\"img\" aria-labelledby=\"title desc\">\n<title id=\"title\">" + escaped(title) +
         "</title>\n<desc id=\"desc\">" + escaped(description) +
         "</desc>\n<style>\n"
         "text { font-family: sans-serif; font-size: 13px; fill: #1f2328; }\n"
         ".ground { fill: #ffffff; stroke: #d0d7de; }\n.axis { stroke: #d0d7de; }\n"
         ".box { stroke: #1f2328; stroke-width: 0.7; }\n.in { fill: #000000; text-anchor: middle; }\n"
         ".small { font-size: 11px; }\n.head { font-size: 16px; font-weight: bold; }\n.mid { text-anchor: "
         "middle; }\n"
         ".end { text-anchor: end; }\n"
         "@media (prefers-color-scheme: dark) {\n"
         "text { fill: #e6edf3; }\n.ground { fill: #0d1117; stroke: #3d444d; }\n.axis { stroke: #3d444d; }\n"
         ".in { fill: #000000; }\n}\n</style>\n"
         "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternTransform=\"rotate(45)\" "
         "patternUnits=\"userSpaceOnUse\"><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#000000\" "
         "stroke-opacity=\"0.16\" stroke-width=\"2\"/></pattern></defs>\n"
         "<rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"" +
         n(kWidth - 1) + "\" height=\"" + n(height - 1) + "\" rx=\"8\"/>\n" +
         "<text class=\"head\" x=\"16\" y=\"28\">" + escaped(title) +
         "</text>\n<text class=\"small end\" x=\"" + n(kWidth - 16) +
         "\" y=\"28\">simulated (hatched)</text>\n";
}

std::string text_at(const char* kind, double x, double y, const std::string& text) {
  return "<text class=\"" + std::string(kind) + "\" x=\"" + n(x) + "\" y=\"" + n(y) + "\">" + escaped(text) +
         "</text>\n";
}

std::string hatched_box(double x, double y, double width, double height, const char* fill) {
  const std::string place =
      "x=\"" + n(x) + "\" y=\"" + n(y) + "\" width=\"" + n(width) + "\" height=\"" + n(height) + "\"";
  return "<rect class=\"box\" " + place + " fill=\"" + fill + "\"/>\n<rect " + place +
         " fill=\"url(#hatch)\"/>\n";
}

std::string legend_entry(double& x, double y, const char* fill, const std::string& name) {
  std::string text = hatched_box(x, y - 12, 16, 16, fill) + text_at("small", x + 22, y, name);
  x += 40 + 7.0 * static_cast<double>(name.size());
  return text;
}

std::size_t colour_index(const Action& action, bool versions) {
  if (versions) return static_cast<std::size_t>(action.version) % kPalette.size();
  return static_cast<std::size_t>(action.kind);
}

class TimelineDrawing {
 public:
  TimelineDrawing(const Schedule& schedule, const Timeline& timeline, const TimelineFigure& figure)
      : schedule_(schedule),
        timeline_(timeline),
        figure_(figure),
        end_(figure.end > 0 ? figure.end : timeline.makespan),
        right_(figure.row_notes.empty() ? 16 : 128),
        scale_((kWidth - kLeft - right_) / std::max(1e-300, end_ - figure.begin)) {}

  std::string draw() {
    const double bottom = kTop + kRow * schedule_.stages;
    std::string text = open(bottom + 64, figure_.title, figure_.description) + axis(bottom);
    for (std::size_t stage = 0; stage < schedule_.actions.size(); ++stage) text += row(stage);
    return text + legend(bottom + 46) + "</svg>\n";
  }

 private:
  [[nodiscard]] double x_of(double time) const { return kLeft + (time - figure_.begin) * scale_; }
  static double y_of(std::size_t stage) { return kTop + kRow * static_cast<double>(stage); }

  // A line for every unit of time, with labels as far apart as necessary.
  [[nodiscard]] std::string axis(double bottom) const {
    const double tick = tick_of(schedule_, timeline_);
    const double length = end_ - figure_.begin;
    if (tick <= 0 || length / tick > 200) return "";
    const int every = std::max(1, static_cast<int>(std::ceil(30 / (scale_ * tick))));
    std::string text;
    const auto ticks = static_cast<int>(std::lround(length / tick));
    for (int i = 0; i <= ticks; i += every) {
      const double x = x_of(figure_.begin + i * tick);
      text += "<line class=\"axis\" x1=\"" + n(x) + "\" y1=\"" + n(kTop - 6) + "\" x2=\"" + n(x) +
              "\" y2=\"" + n(bottom) + "\"/>\n";
      if (i < ticks)
        text += text_at("small", x + 2, kTop - 10, "t" + number_text(figure_.begin / tick + i, 0));
    }
    return text;
  }

  std::string row(std::size_t stage) {
    std::string text = text_at("", 16, y_of(stage) + 24, "stage " + std::to_string(stage));
    for (std::size_t i = 0; i < schedule_.actions[stage].size(); ++i) {
      const Action& action = schedule_.actions[stage][i];
      const Span span = timeline_.spans[stage][i];
      const bool inside = span.start >= figure_.begin - 1e-9 && span.end <= end_ + 1e-9;
      if (!is_compute(action.kind) || span.end <= span.start || !inside) continue;
      text += box(action, span, y_of(stage));
    }
    if (stage < figure_.row_notes.size()) {
      text += text_at("small", kWidth - right_ + 12, y_of(stage) + 24, figure_.row_notes[stage]);
    }
    return text;
  }

  std::string box(const Action& action, Span span, double y) {
    const std::size_t colour = colour_index(action, figure_.show_versions);
    used_[colour] = true;
    repeats_ = repeats_ || (figure_.show_versions && action.version != static_cast<int>(colour));
    const double x = x_of(span.start);
    const double width = (span.end - span.start) * scale_;
    std::string text = hatched_box(x, y + 2, width, kRow - 4, kPalette[colour]);
    const double middle = x + width / 2;
    const std::string label = std::to_string(action.microbatch);
    if (width < 7 + 7.0 * static_cast<double>(label.size())) return text;
    if (!figure_.show_versions) return text + text_at("in", middle, y + 25, label);
    return text + text_at("in", middle, y + 18, to_text(action).substr(0, 1) + label) +
           text_at("in small", middle, y + 32, "v" + std::to_string(action.version));
  }

  [[nodiscard]] std::string legend(double y) const {
    constexpr std::array<const char*, 4> kKinds = {"forward", "backward", "backward, input's half",
                                                   "backward, weights' half"};
    double x = kLeft;
    std::string text;
    for (std::size_t i = 0; i < kPalette.size(); ++i) {
      if (!used_[i]) continue;
      text += legend_entry(x, y, kPalette[i], figure_.show_versions ? versions_of(i) : kKinds[i]);
    }
    return text + text_at("small end", kWidth - 16, y,
                          figure_.show_versions ? "letter: kind, number: microbatch; v: weights version"
                                                : "numbers: microbatch");
  }

  // The versions that a colour stands for: "v0", or "v0, v8, ..." if there are more versions than colours.
  [[nodiscard]] std::string versions_of(std::size_t colour) const {
    std::string text = "v" + std::to_string(colour);
    if (repeats_) text += ", v" + std::to_string(colour + kPalette.size()) + ", ...";
    return text;
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  const TimelineFigure& figure_;
  const double end_, right_, scale_;
  std::array<bool, kPalette.size()> used_{};
  bool repeats_ = false;  // one colour stands for several versions
};

}  // namespace

std::string timeline_svg(const Schedule& schedule, const Timeline& timeline, const TimelineFigure& figure) {
  return TimelineDrawing(schedule, timeline, figure).draw();
}

std::string bars_svg(const BarFigure& figure) {
  constexpr double kPlot = 220;
  const double bottom = kTop + kPlot;
  std::string text = open(bottom + 76, figure.title, figure.description);
  for (int percent = 0; percent <= 100; percent += 25) {
    const double y = bottom - kPlot * percent / 100;
    text += "<line class=\"axis\" x1=\"" + n(kLeft) + "\" y1=\"" + n(y) + "\" x2=\"" + n(kWidth - 16) +
            "\" y2=\"" + n(y) + "\"/>\n";
    text += text_at("small end", kLeft - 8, y + 4, std::to_string(percent) + " %");
  }
  const double group_width = (kWidth - kLeft - 16) / static_cast<double>(figure.groups.size());
  for (std::size_t g = 0; g < figure.groups.size(); ++g) {
    const double left = kLeft + group_width * static_cast<double>(g) + 8;
    const double width = (group_width - 16) / static_cast<double>(figure.series.size());
    for (std::size_t i = 0; i < figure.groups[g].shares.size(); ++i) {
      const double height = kPlot * figure.groups[g].shares[i];
      const double x = left + width * static_cast<double>(i);
      text += hatched_box(x, bottom - height, width - 2, height, kPalette[i]);
      text += text_at("small mid", x + width / 2 - 1, bottom - height - 4,
                      number_text(100 * figure.groups[g].shares[i], 0));
    }
    text += text_at("mid", left + (group_width - 16) / 2, bottom + 20, figure.groups[g].name);
  }
  double x = kLeft;
  for (std::size_t i = 0; i < figure.series.size(); ++i)
    text += legend_entry(x, bottom + 56, kPalette[i], figure.series[i]);
  return text + text_at("small end", kWidth - 16, bottom + 56, figure.note) + "</svg>\n";
}

}  // namespace sc::pipedream

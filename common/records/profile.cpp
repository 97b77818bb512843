#include "common/records/profile.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/text.h"

namespace sc {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string share_of_bound(double alone, double milliseconds) {
  return alone > 0 && milliseconds > 0 ? fmt::format("{:.0f} %", 100 * alone / milliseconds) : "-";
}

std::string rate_of(const ProfileRow& r) {
  const double seconds = r.milliseconds / 1e3;
  if (seconds <= 0) return "-";
  if (r.flops > 0) return fmt::format("{:.0f} TF/s", r.flops / seconds / 1e12);
  return fmt::format("{:.2f} TB/s", r.bytes / seconds / 1e12);
}

std::string format_operations(const Profile& p, double steps) {
  const auto share = [&](double ms) { return fmt::format("{:.1f} %", 100 * ms / p.step_milliseconds); };
  Rows lines = {{"time of a step by operation", "ms", "share", "calls", "rate", "of its bound"}};
  double rest = p.step_milliseconds - p.waited_milliseconds;
  for (const ProfileRow& r : p.rows) {
    const double ms = r.milliseconds / steps;
    rest -= ms;
    lines.push_back({r.op, fmt::format("{:.2f}", ms), share(ms),
                     fmt::format("{:.0f}", static_cast<double>(r.calls) / steps), rate_of(r),
                     share_of_bound(r.alone, r.milliseconds)});
  }
  if (p.waited_milliseconds > 0)
    lines.push_back({"waits for communication", fmt::format("{:.2f}", p.waited_milliseconds),
                     share(p.waited_milliseconds)});
  lines.push_back({"between operations", fmt::format("{:.2f}", rest), share(rest)});
  lines.push_back({fmt::format("a step (mean of {})", p.steps), fmt::format("{:.2f}", p.step_milliseconds)});
  return table(lines);
}

std::string format_communication(const Profile& p, double steps) {
  Rows lines = {{"communication beside them", "ms", "calls", "sent", "rate", "of its bound"}};
  double all = 0;
  for (const ProfileCommRow& r : p.communication) {
    all += r.milliseconds / steps;
    const auto sent = static_cast<double>(r.sent.value());
    lines.push_back({std::string(name_of(r.kind)), fmt::format("{:.2f}", r.milliseconds / steps),
                     fmt::format("{:.0f}", static_cast<double>(r.calls) / steps),
                     human_bytes(Bytes(static_cast<std::int64_t>(sent / steps))),
                     r.milliseconds > 0 ? fmt::format("{:.0f} GB/s", sent / r.milliseconds / 1e6) : "-",
                     share_of_bound(r.alone, r.milliseconds)});
  }
  if (all > 0)  // for time that no rank waited for
    lines.push_back({"hidden behind compute",
                     fmt::format("{:.0f} %", 100 * std::max(0.0, 1 - p.waited_milliseconds / all))});
  return table(lines);
}

// Explains what the table means by an operation's bound.
std::string format_bounds(const Profile& p) {
  std::string text = "  bounds, measured after the run: ";
  text += p.product_rate > 0
              ? fmt::format(
                    "each product's shape alone (the best at {:.0f} TF/s, which attention is held against)",
                    p.product_rate / 1e12)
              : "products unknown (no memory was free to measure them)";
  text += p.memory_rate > 0 ? fmt::format(", memory {:.2f} TB/s", p.memory_rate / 1e12)
                            : ", memory unknown (none was free to copy)";
  if (!p.communication.empty()) text += ", each sum over ranks with nothing beside it";
  return text + "\n";
}

}  // namespace

std::string format_profile(const Profile& profile) {
  if (profile.steps == 0)
    return "  no step was profiled: the first ones are not, and this run had no others\n";
  const auto steps = static_cast<double>(profile.steps);
  std::string text = format_operations(profile, steps);
  if (!profile.communication.empty()) text += format_communication(profile, steps);
  return text + format_bounds(profile) + format_sensors(profile.sensors);
}

}  // namespace sc

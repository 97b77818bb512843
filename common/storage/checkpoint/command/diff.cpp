// checkpoint diff: compares two states element by element.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/text.h"
#include "common/input/printable.h"
#include "common/storage/checkpoint/command/command.h"
#include "common/storage/checkpoint/command/numbers.h"

namespace sc::checkpoint {
namespace {

using Rows = std::vector<std::vector<std::string>>;
constexpr std::int64_t kComparedAtOnce = std::int64_t{1} << 20;  // elements compared at a time

struct Difference {
  std::int64_t elements = 0;
  double largest = 0;  // NaN if a NaN was compared with a number
};

/// The manifest's own keys and values, such as "workload.model.vocab", without tensors and files.
nlohmann::json flat(const Manifest& manifest) {
  nlohmann::json json = nlohmann::json::parse(text_of(manifest));
  for (const char* key : {"xxh3", "format", "tensors", "files"}) json.erase(key);
  return json.flatten();
}

void print_manifests(const Manifest& a, const Manifest& b, std::ostream& log) {
  const nlohmann::json in_a = flat(a), in_b = flat(b);
  nlohmann::json names = in_a;
  names.update(in_b);
  for (const auto& [name, unused] : names.items()) {
    const auto value = [&key = name](const nlohmann::json& json) {
      return json.contains(key) ? json[key].dump() : std::string("not there");
    };
    if (value(in_a) == value(in_b)) continue;
    std::string key = name.substr(1);
    std::replace(key.begin(), key.end(), '/', '.');
    log << fmt::format("{}: {}, {}\n", shown(key), shown(value(in_a)), shown(value(in_b)));
  }
}

class Comparison {
 public:
  Comparison(Reader& a, Reader& b) : a_(a), b_(b) {}

  void compare_all() {
    for (const Key& key : a_.keys()) {
      const Key other = counterpart(key, a_, b_);
      if (b_.holds(other)) {
        compare(key, other);
      } else {
        only(key, a_);
      }
    }
    for (const Key& key : b_.keys()) {
      if (!a_.holds(counterpart(key, b_, a_))) only(key, b_);
    }
  }

  void print(std::ostream& log) const {
    for (const auto& [purpose, count] : equal_tensors_)
      log << fmt::format("{}: {} tensor{} equal\n", shown(purpose), count, count == 1 ? "" : "s");
    if (rows_.size() > 1) log << table(rows_);
  }

  [[nodiscard]] bool equal() const { return equal_; }

 private:
  /// The key under which the other checkpoint has the same values: weights may be `master` in one and
  /// `parameters` in the other.
  static Key counterpart(Key key, const Reader& from, const Reader& to) {
    if (key.version == 0 && key.purpose == from.weights()) key.purpose = to.weights();
    return key;
  }
  void compare(const Key& in_a, const Key& in_b) {
    const std::int64_t numel = a_.numel(in_a.tensor), other = b_.numel(in_b.tensor);
    if (numel != other) {
      rows_.push_back({shown(text_of(in_a)), fmt::format("{}, {}", numel, other), "another shape", ""});
      equal_ = false;
      return;
    }
    const Difference found = difference(in_a, in_b, numel);
    if (found.elements == 0) {
      ++equal_tensors_[text_of(Key{"", in_a.purpose, in_a.version}).substr(1)];
      return;
    }
    rows_.push_back({shown(text_of(in_a)), std::to_string(numel), std::to_string(found.elements),
                     fmt::format("{:.3g}", found.largest)});
    equal_ = false;
  }

  [[nodiscard]] Difference difference(const Key& in_a, const Key& in_b, std::int64_t numel) {
    const DType type_a = a_.dtype(in_a), type_b = b_.dtype(in_b);
    const std::int64_t width_a = size_of(type_a), width_b = size_of(type_b);
    std::vector<std::byte> from_a, from_b;
    Difference found;
    for (std::int64_t begin = 0; begin < numel; begin += kComparedAtOnce) {
      const Range range{begin, std::min(begin + kComparedAtOnce, numel)};
      from_a.resize(static_cast<std::size_t>(range.size() * width_a));
      from_b.resize(static_cast<std::size_t>(range.size() * width_b));
      a_.read(in_a, range, from_a);
      b_.read(in_b, range, from_b);
      if (type_a == type_b && from_a == from_b) continue;
      for (std::int64_t i = 0; i < range.size(); ++i) {
        const std::byte *at_a = &from_a[static_cast<std::size_t>(i * width_a)],
                        *at_b = &from_b[static_cast<std::size_t>(i * width_b)];
        const double a = number_at(at_a, type_a), b = number_at(at_b, type_b);
        const bool same = type_a == type_b ? std::equal(at_a, at_a + width_a, at_b) : a == b;
        if (same) continue;
        ++found.elements;
        const double apart = std::abs(a - b);
        if (!(apart <= found.largest)) found.largest = apart;  // also if `apart` is NaN
      }
    }
    return found;
  }

  /// Lists what one checkpoint has alone. Pending work of one strategy (gradients, older versions) may be
  /// missing in the other, and does not count as a difference.
  void only(const Key& key, const Reader& holder) {
    rows_.push_back({shown(text_of(key)), "", fmt::format("only in {}", &holder == &a_ ? "A" : "B"), ""});
    const bool state = key.version == 0 && (key.purpose == holder.weights() || key.purpose == "momentum" ||
                                            key.purpose == "variance");
    if (state) equal_ = false;
  }

  Reader &a_, &b_;
  bool equal_ = true;
  std::map<std::string, std::int64_t> equal_tensors_;  // by purpose
  Rows rows_ = {{"tensor", "elements", "different", "largest difference"}};
};

}  // namespace

int diff(FileOps& ops, const Path& a, const Path& b, std::ostream& log) {
  const Path path_a = one_checkpoint(ops, a, log), path_b = one_checkpoint(ops, b, log);
  Reader reader_a(ops, path_a), reader_b(ops, path_b);
  log << printable(fmt::format("A: {}\nB: {}\n", path_a.string(), path_b.string()));
  print_manifests(reader_a.manifest(), reader_b.manifest(), log);
  Comparison comparison(reader_a, reader_b);
  comparison.compare_all();
  comparison.print(log);
  return comparison.equal() ? 0 : 1;
}

}  // namespace sc::checkpoint

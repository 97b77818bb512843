// The size of a buffer as a number and as the text that a reader sees, and its symbols' legend. No torch.
#pragma once

#include <array>
#include <cctype>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/types.h"

namespace sc {

struct FormulaSymbol {
  const char *symbol, *meaning;
};

inline constexpr std::array kFormulaSymbols = {
    // Counts of elements. In a formula, `unit` and `whole` belong to the unit in the buffer's name.
    FormulaSymbol{"P", "of all units, padded for the ranks that share them; of tensor ranks this one's"},
    FormulaSymbol{"W", "of P, those that persist_below keeps whole on every rank"},
    FormulaSymbol{"unit", "of the unit, padded as in P; of blocks, the largest one's"},
    FormulaSymbol{"whole", "of unit, those that persist_below keeps whole on every rank"},
    FormulaSymbol{"units", "of those whose states stay on the device (resident)"},
    FormulaSymbol{"blocks", "of those, all but unit 0"},
    FormulaSymbol{"stage", "of all units of this stage, with its copy of the tied matrix"},
    FormulaSymbol{"bucket", "of the largest message of gradients"},
    FormulaSymbol{"piece", "of the largest piece of states that is updated at a time"},
    // Sizes of the model and of a micro-batch.
    FormulaSymbol{"L", "blocks of the model"},
    FormulaSymbol{"d", "width"},
    FormulaSymbol{"H", "heads of attention"},
    FormulaSymbol{"V", "vocabulary as stored"},
    FormulaSymbol{"B", "rows of a micro-batch"},
    FormulaSymbol{"T", "tokens of a row"},
    FormulaSymbol{"M", "micro-batches of a rank in a step"},
    FormulaSymbol{"M_eval", "micro-batches of a rank in an evaluation, where those are more"},
    FormulaSymbol{"c", "context ranks, which share the tokens of a row"},
    // Sizes of what one tensor rank holds.
    FormulaSymbol{"t", "tensor ranks"},
    FormulaSymbol{"n", "tokens of a micro-batch that are its own: B T/t, or with tokens=whole B T"},
    FormulaSymbol{"a", "elements of its heads of attention, a token"},
    FormulaSymbol{"m", "its columns of the MLP"},
    FormulaSymbol{"v", "its rows of the vocabulary"},
    FormulaSymbol{"chunk", "rows of logits at a time"},
    FormulaSymbol{"part", "what forward keeps of its part of a block for backward"},
    FormulaSymbol{"parts", "what as many tensor ranks together compute with, on one"},
    // Numbers of ranks, and how far apart ranks are in their work.
    FormulaSymbol{"N", "ranks; of a pipeline S R"},
    FormulaSymbol{"S", "stages of a pipeline"},
    FormulaSymbol{"R", "replicas of a stage, or of k ranks"},
    FormulaSymbol{"k", "neighbours that share each vector out (shard_ranks)"},
    FormulaSymbol{"virtual_ranks", "whose order of summation one rank copies"},
    FormulaSymbol{"norm_lag", "updates after which the norm of one clips another"},
    FormulaSymbol{"result_lag", "steps after which every stage knows what one came to"},
    FormulaSymbol{"buffers", "pieces of the window"},
    // Bytes without a short formula; common/model/activation_plan.cpp works out the first four.
    FormulaSymbol{"saved", "what forward keeps of a block for its backward"},
    FormulaSymbol{"work", "what one block is computed with"},
    FormulaSymbol{"head", "what the head is computed with: its input, its statistics, logits"},
    FormulaSymbol{"waiting", "what the weights' half of a block's backward waits with"},
    FormulaSymbol{"rounding", "up to whole blocks of 4096 bytes: of a piece, on the disk of all of them"},
    // Sizes of a checkpoint's copy in memory, which is written while training goes on.
    FormulaSymbol{"copied",
                  "elements of each state that this rank writes: its own, or its part of equal ones"},
    FormulaSymbol{"pending", "bytes that a step has left for the next one"},
};

/// A symbol of the legend, or the unit KiB or MiB. Any other name does not compile.
struct SymbolName {
  // NOLINTNEXTLINE(google-explicit-constructor): allows Formula("P", n)
  consteval SymbolName(const char* name) : text(name) {
    const std::string_view wanted(name);
    if (wanted == "KiB" || wanted == "MiB") return;
    for (const FormulaSymbol& known : kFormulaSymbols)
      if (wanted == known.symbol) return;
    throw std::invalid_argument("the legend has no such symbol");
  }
  const char* text;
};

/// A whole number that remembers how it was computed: 4 * (Formula("P", 12) - 2) / Formula("N", 5) is 8 and
/// reads "4 (P - 2)/N". A product has no sign, except between two numbers: "2 x 4 B T d".
class Formula {
 public:
  /// The factor one, which multiplication leaves out of the text.
  Formula() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): allows 4 * Formula("P", n)
  Formula(std::int64_t number) : value_(number), text_(std::to_string(number)) {}
  Formula(SymbolName name, std::int64_t value) : value_(value), text_(name.text) {}
  Formula(SymbolName name, Elements elements) : Formula(name, elements.value()) {}
  Formula(SymbolName name, WorldSize ranks) : Formula(name, to_int(ranks)) {}

  [[nodiscard]] std::int64_t value() const { return value_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  bool operator==(const Formula&) const = default;

  friend Formula operator+(const Formula& a, const Formula& b) {
    return {a.value_ + b.value_, a.text_ + " + " + b.text_, Binds::sum};
  }
  friend Formula operator-(const Formula& a, const Formula& b) {
    return {a.value_ - b.value_, a.text_ + " - " + b.within(Binds::product), Binds::sum};
  }
  friend Formula operator*(const Formula& a, const Formula& b) {
    if (b.text_.empty()) return a;
    const std::string left = a.within(Binds::product), right = b.within(Binds::product);
    const bool numbers = is_digit(left.back()) && is_digit(right.front());
    return {a.value_ * b.value_, left + (numbers ? " x " : " ") + right, Binds::product};
  }
  /// Divides exactly.
  ///   Errors  std::logic_error if there is a remainder.
  friend Formula operator/(const Formula& a, const Formula& b) {
    Formula quotient(a.value_ / b.value_, a.within(Binds::product) + "/" + b.within(Binds::whole),
                     Binds::product);
    if (a.value_ % b.value_ != 0) throw std::logic_error(quotient.text_ + " leaves a remainder");
    return quotient;
  }
  /// A product whose text shows its sign: "buffers x piece".
  friend Formula times(const Formula& a, const Formula& b) {
    return {a.value_ * b.value_, a.within(Binds::product) + " x " + b.within(Binds::product), Binds::product};
  }
  /// `n` times something that reads as one thing: "2 (4 B T d)"; `each` itself for n = 1.
  friend Formula copies(std::int64_t n, const Formula& each) {
    if (n == 1) return each;
    return {n * each.value_, std::to_string(n) + " (" + each.text_ + ")", Binds::product};
  }

 private:
  enum class Binds : std::uint8_t { sum, product, whole };  // how strongly the outermost operator binds
  Formula(std::int64_t value, std::string text, Binds binds)
      : value_(value), text_(std::move(text)), binds_(binds) {}
  [[nodiscard]] std::string within(Binds outer) const { return binds_ < outer ? "(" + text_ + ")" : text_; }
  static bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

  std::int64_t value_ = 1;
  std::string text_;
  Binds binds_ = Binds::whole;
};

}  // namespace sc

// One table of fields drives the JSON reader, --set, --explain, "did you mean", the hash and docs/config.md.
//
//   FieldTable<Options> MyPlans::table() const {
//     FieldTable<Options> table;
//     table.add({"overlap", "", "send a bucket while backward still runs"}, on_off(), &Options::overlap);
//     return table;
//   }
//   Options options;
//   const FieldSet fields = table().bind(options);
//   fields.set("overlap", {Value::Form::flag, "off"}, "--set overlap=off");
//
// No torch.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/config/field.h"

namespace sc {

/// Where each key's value came from: "configs/tiny.json:4:15" or "--set batch.micro=2". Defaults are absent.
using Origins = std::map<std::string, std::string>;

/// What a person writes about a field; its codec supplies type and range.
struct FieldText {
  std::string path;  // "model.layers" is the key `layers` in the JSON object `model`
  std::string unit;  // e.g. "tokens"; empty if there is none
  std::string doc;   // one line for --explain and docs/config.md
};

/// One field, bound to one object. The type of its member is erased.
struct Field {
  std::string path, type, unit, default_text, range, doc;
  std::vector<std::string> choices;
  std::function<void(const Value&)> set;  // throws FieldError
  std::function<std::string()> get;       // canonical spelling

  /// The allowed values as messages show them: "1 .. 64", or the choices.
  [[nodiscard]] std::string allowed() const;
};

/// The fields of one object, which must outlive this set. Keys are unique.
class FieldSet {
 public:
  FieldSet() = default;
  explicit FieldSet(std::vector<Field> fields);

  [[nodiscard]] const std::vector<Field>& fields() const { return fields_; }
  [[nodiscard]] const Field* find(std::string_view path) const;
  /// Whether `path` names a group of fields, as "model" does for "model.layers".
  [[nodiscard]] bool has_group(std::string_view path) const;
  [[nodiscard]] std::vector<std::string> paths() const;

  /// Sets one field, which must exist.
  ///   Errors  InputError(usage) at `where`, with the allowed values as the fix.
  void set(std::string_view path, const Value& value, const std::string& where) const;

  /// All fields as lines "path=value", sorted by path. Equal texts mean equal configurations.
  [[nodiscard]] std::string canonical_text() const;
  [[nodiscard]] std::string hash() const;

 private:
  std::vector<Field> fields_;
};

/// The known key that a mistyped one probably means: close in spelling, or with the same last part ("micro"
/// for "batch.micro"). "" if there is none.
std::string nearest_key(std::string_view key, const std::vector<const FieldSet*>& sets);

/// The text that answers --explain: type, unit, default, allowed values, meaning, present value and its
/// origin. The key "all" lists every field.
///   Errors  InputError(usage) with the nearest key, if there is no such field or group.
std::string explain(std::string_view key, const std::vector<const FieldSet*>& sets, const Origins& origins);

/// Follows member pointers: member_of(workload, &Workload::model, &GptConfig::layers) is
/// workload.model.layers.
template <class Object, class First, class... Rest>
auto& member_of(Object& object, First first, Rest... rest) {
  auto& member = std::invoke(first, object);
  if constexpr (sizeof...(rest) == 0)
    return member;
  else
    return member_of(member, rest...);
}

/// The fields of a struct T, not yet bound to an object. Defaults are the values of T{}.
template <class T>
class FieldTable {
 public:
  /// Adds a field. `way` leads from a T to the member of type V by member pointers (see member_of).
  template <class V, class... Way>
  FieldTable& add(const FieldText& text, Codec<V> codec, Way... way) {
    const auto place = [=](T & object) -> auto& { return member_of(object, way...); };
    T defaults{};
    static_assert(std::is_same_v<decltype(place(defaults)), V&>, "the codec's type is the member's");
    const Field field{.path = text.path,
                      .type = codec.type,
                      .unit = text.unit,
                      .default_text = codec.format(place(defaults)),
                      .range = codec.range,
                      .doc = text.doc,
                      .choices = codec.choices,
                      .set = {},
                      .get = {}};
    binders_.push_back([=](T& object) {
      Field bound = field;
      bound.set = [&object, codec, place](const Value& value) { place(object) = codec.parse(value); };
      bound.get = [&object, codec, place] { return codec.format(place(object)); };
      return bound;
    });
    return *this;
  }

  /// Fields that read and write `object`, which must outlive them.
  [[nodiscard]] FieldSet bind(T& object) const {
    std::vector<Field> fields;
    for (const auto& binder : binders_) fields.push_back(binder(object));
    return FieldSet(std::move(fields));
  }

 private:
  std::vector<std::function<Field(T&)>> binders_;
};

}  // namespace sc

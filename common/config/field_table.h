// ONE table of fields gives the JSON reader, --set, --explain, "did you mean", the hash and docs/config.md.
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

/// Where each key's value came from: "configs/tiny.json:4:15", "--set batch.micro=2". A key that is not there
/// has its default.
using Origins = std::map<std::string, std::string>;

/// The part of a field that is written by hand beside its codec and its place in the struct.
struct FieldText {
  std::string path;  // "model.layers": in JSON an object within an object
  std::string unit;  // "tokens"; empty if it has none
  std::string doc;   // one line
};

/// One field, its type erased, bound to one object.
struct Field {
  std::string path, type, unit, default_text, range, doc;
  std::vector<std::string> choices;
  std::function<void(const Value&)> set;  // throws FieldError
  std::function<std::string()> get;       // canonical spelling

  /// "1 .. 64", or the choices: what may stand there.
  [[nodiscard]] std::string allowed() const;
};

/// The fields of one object, which must outlive it. Keys are unique.
class FieldSet {
 public:
  FieldSet() = default;
  explicit FieldSet(std::vector<Field> fields);

  [[nodiscard]] const std::vector<Field>& fields() const { return fields_; }
  [[nodiscard]] const Field* find(std::string_view path) const;
  /// True if `path` names a group: "model" of "model.layers".
  [[nodiscard]] bool has_group(std::string_view path) const;
  [[nodiscard]] std::vector<std::string> paths() const;

  /// Sets one field, which must exist.
  ///   Errors  InputError(usage) at `where`, with the allowed values as the fix.
  void set(std::string_view path, const Value& value, const std::string& where) const;

  /// "path=value" lines, sorted by path: equal text, equal configuration.
  [[nodiscard]] std::string canonical_text() const;
  /// SHA-256 of canonical_text.
  [[nodiscard]] std::string hash() const;

 private:
  std::vector<Field> fields_;
};

/// The field of `sets` that a mistyped key probably means: near by spelling, or of the same last part
/// ("micro" for "batch.micro"). "" if there is none.
std::string nearest_key(std::string_view key, const std::vector<const FieldSet*>& sets);

/// The answer to --explain: type, unit, default, allowed values, meaning, present value and its origin; `key`
/// "all" lists every field.
///   Errors  InputError(usage) with the nearest key, if there is no such field or group.
std::string explain(std::string_view key, const std::vector<const FieldSet*>& sets, const Origins& origins);

/// What a way of members leads to: of member_of(workload, &Workload::model, &GptConfig::layers) the layers.
template <class Object, class First, class... Rest>
auto& member_of(Object& object, First first, Rest... rest) {
  auto& member = std::invoke(first, object);
  if constexpr (sizeof...(rest) == 0)
    return member;
  else
    return member_of(member, rest...);
}

/// The fields of a struct T, not yet bound to an object; defaults are those of T{}.
template <class T>
class FieldTable {
 public:
  /// `way` leads from a T to the member of type V: &T::name, or more than one for a member's member.
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

  /// The fields of `object`, by reference.
  [[nodiscard]] FieldSet bind(T& object) const {
    std::vector<Field> fields;
    for (const auto& binder : binders_) fields.push_back(binder(object));
    return FieldSet(std::move(fields));
  }

 private:
  std::vector<std::function<Field(T&)>> binders_;
};

}  // namespace sc

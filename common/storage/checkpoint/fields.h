// Reading JSON strictly: a key that is missing or of another type is an error that names it. Internal to
// checkpoints; no torch.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/input/json_text.h"
#include "common/storage/checkpoint/file_writer.h"

namespace sc::checkpoint {

/// What is read: its objects are trees, so that a file of a great many keys is not read in time by their
/// square.
using Json = nlohmann::json;
/// What is written keeps its order.
using OrderedJson = nlohmann::ordered_json;

/// The text of a manifest, or of a part of one, within its bounds (kMostManifestBytes); or of another file.
///   Errors  InputError (exit 65) naming `where`.
Json json_of_text(std::string_view text, const std::string& where);
Json json_of_text(std::string_view text, const std::string& where, const JsonLimits& limits,
                  const std::string& fix);

/// The members of one JSON object.
///   where   names the file in errors; `path`: the object within it ("scaler", "files[3]"), "" for the whole.
///   Errors  InputError (exit 65).
class Fields {
 public:
  Fields(const Json& object, std::string where, std::string path = "");

  [[nodiscard]] std::int64_t count(const char* key) const;  // an integer of at least 0
  [[nodiscard]] double number(const char* key) const;
  [[nodiscard]] std::string text(const char* key) const;
  [[nodiscard]] std::map<std::string, std::string> texts(const char* key) const;
  [[nodiscard]] std::vector<std::int64_t> counts(const char* key) const;
  [[nodiscard]] std::vector<std::uint64_t> sums(const char* key) const;
  [[nodiscard]] std::uint64_t sum(const char* key) const;
  [[nodiscard]] Fields object(const char* key) const;
  [[nodiscard]] std::vector<Fields> objects(const char* key) const;
  [[nodiscard]] const Json& json() const { return object_; }

  [[noreturn]] void refuse(const std::string& what) const;

 private:
  [[nodiscard]] const Json& at(const char* key) const;
  [[nodiscard]] std::string full(const char* key) const;
  [[noreturn]] void refuse_type(const char* key, const char* wanted) const;

  const Json& object_;
  std::string where_, path_;
};

OrderedJson json_of(const FileSums& sums);
FileSums file_sums_of(const Fields& fields);

}  // namespace sc::checkpoint

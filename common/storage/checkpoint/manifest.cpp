#include "common/storage/checkpoint/manifest.h"

#include <spdlog/fmt/fmt.h>

#include <charconv>
#include <set>
#include <stdexcept>

#include "common/input/json_parse.h"
#include "common/input/printable.h"
#include "common/storage/checkpoint/fields.h"
#include "common/storage/safetensors_header.h"

namespace sc::checkpoint {
namespace {

constexpr std::string_view kHead = "{\"xxh3\": \"", kHeadEnd = "\",\n";
constexpr std::size_t kHeadBytes = kHead.size() + 16 + kHeadEnd.size();

std::string head_for(std::string_view rest) {
  return fmt::format("{}{}{}", kHead, hex_of(sum_of(as_bytes(rest))), kHeadEnd);
}

void check_files(const Manifest& manifest, const JsonNode& files) {
  if (manifest.files.size() != static_cast<std::size_t>(manifest.world)) {
    files.fail(fmt::format("has {} files of {} ranks", manifest.files.size(), manifest.world));
  }
  for (std::size_t r = 0; r < manifest.files.size(); ++r) {
    const std::string wanted = file_name(static_cast<std::int64_t>(r));
    if (manifest.files[r].name == wanted) continue;
    files.elements()[r]["name"].must_be("\"" + wanted + "\"");
  }
}

void read_tensors(Manifest& manifest, const JsonNode& node) {
  std::set<std::string> names;
  for (const JsonNode& tensor : node.elements()) {
    TensorShape& added = manifest.tensors.emplace_back(TensorShape{tensor["name"].text(), {}});
    for (const JsonNode& size : tensor["shape"].elements()) added.shape.push_back(size.integer());
    if (added.numel() <= 0) tensor["shape"].fail("has no elements, or more than 64 bits can count");
    if (!names.insert(added.name).second)
      tensor.fail(fmt::format("is \"{}\" a second time", shown(added.name)));
  }
}

// In checkpoints from before rows were counted, every step had the same batch.
void read_progress(Manifest& manifest, const JsonNode& node) {
  if (node.has("rows")) {
    manifest.rows = node["rows"].integer();
    manifest.tokens = node["tokens"].integer();
  } else {
    const auto found = manifest.workload.find("batch.global");
    const std::string text = found == manifest.workload.end() ? "" : found->second;
    std::int64_t global = 0;
    std::from_chars(text.data(), text.data() + text.size(), global);
    if (global <= 0) node["workload"].fail("does not say batch.global, the rows of a step");
    if (__builtin_mul_overflow(manifest.step, global, &manifest.rows) ||
        __builtin_mul_overflow(manifest.step, manifest.tokens_per_step, &manifest.tokens))
      node["step"].fail("is larger than a run can get");
  }
}

Manifest read_manifest(const JsonNode& fields) {
  if (fields["format"].integer() != kFormat)
    fields["format"].must_be(std::to_string(kFormat) + ", as this program reads it");
  const JsonNode scaler = fields["scaler"], data = fields["data"], extra = fields["extra"];
  if (!extra.value().is_object()) extra.must_be("an object");
  Manifest m{
      .step = fields["step"].integer(),
      .updates = fields["updates"].integer(),
      .tokens_per_step = fields["tokens_per_step"].integer(),
      .rows = 0,
      .tokens = 0,
      .scaler = {scaler["scale"].number(), scaler["good_steps"].integer(), scaler["overflows"].integer()},
      .skips_in_a_row = fields["skips_in_a_row"].integer(),
      .lesson = fields["lesson"].text(),
      .world = fields["world"].integer(),
      .workload = fields["workload"].texts(),
      .workload_hash = fields["workload_hash"].text(),
      .strategy = fields["strategy"].texts(),
      .commit = fields["commit"].text(),
      .arithmetic = fields.has("arithmetic") ? fields["arithmetic"].text() : "",
      .data = {data["bytes"].integer(), sum_of(data["sum"])},
      .tensors = {},
      .extra = extra.value().dump(),
      .files = {}};
  read_progress(m, fields);
  if (!(m.scaler.scale > 0)) scaler["scale"].must_be("above 0");
  read_tensors(m, fields["tensors"]);
  for (const JsonNode& file : fields["files"].elements()) m.files.push_back(file_sums_of(file));
  check_files(m, fields["files"]);
  return m;
}

}  // namespace

std::int64_t TensorShape::numel() const { return shape_numel(shape); }

void reading_extra(const Path& dir, const std::function<void()>& read) {
  const auto refuse = [&](const std::exception& error) {
    throw InputError(ExitCode::data, (dir / kManifestName).string(),
                     fmt::format("\"extra\" is not what its lesson writes: {}", json_words(error.what())),
                     "use another checkpoint");
  };
  try {
    read();
  } catch (const nlohmann::json::exception& error) {
    refuse(error);
  } catch (const std::out_of_range& error) {
    refuse(error);
  }
}

std::string put_off_in(const Manifest& manifest) {
  return of_manifest(manifest.extra, kManifestName, [&](const JsonNode& extra) {
    return shown(extra.has("put_off") ? extra["put_off"].text() : manifest.extra);
  });
}

std::string text_of(const Manifest& m) {
  OrderedJson json = {
      {"format", kFormat},
      {"step", m.step},
      {"updates", m.updates},
      {"tokens_per_step", m.tokens_per_step},
      {"rows", m.rows},
      {"tokens", m.tokens},
      {"scaler",
       {{"scale", m.scaler.scale}, {"good_steps", m.scaler.good_steps}, {"overflows", m.scaler.overflows}}},
      {"skips_in_a_row", m.skips_in_a_row},
      {"lesson", m.lesson},
      {"world", m.world},
      {"workload", m.workload},
      {"workload_hash", m.workload_hash},
      {"strategy", m.strategy},
      {"commit", m.commit},
      {"arithmetic", m.arithmetic},
      {"data", {{"bytes", m.data.bytes}, {"sum", hex_of(m.data.sum)}}},
      {"tensors", OrderedJson::array()},
      {"extra", OrderedJson::parse(m.extra, nullptr, false)},
      {"files", OrderedJson::array()}};
  if (!json["extra"].is_object()) throw std::logic_error("checkpoint: extra is not a JSON object");
  for (const TensorShape& tensor : m.tensors) {
    json["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  }
  for (const FileSums& file : m.files) json["files"].push_back(json_of(file));
  // Skips "{\n", which the head already has. Invalid UTF-8 is replaced, because paths among the values may
  // hold any bytes.
  const std::string rest = json.dump(1, ' ', false, OrderedJson::error_handler_t::replace).substr(2) + "\n";
  return head_for(rest) + rest;
}

Manifest manifest_of_text(std::string_view text, const std::string& where) {
  if (!text.starts_with(kHead) || text.size() < kHeadBytes) {
    throw InputError(ExitCode::data, where, "does not begin as a checkpoint's manifest does",
                     "give a checkpoint of this program (step-NNNNNN), or use another one");
  }
  if (text.substr(0, kHeadBytes) != head_for(text.substr(kHeadBytes))) {
    throw InputError(ExitCode::data, where, "is damaged: its content does not have its check sum",
                     "use another checkpoint");
  }
  return of_manifest(text, where, read_manifest);
}

}  // namespace sc::checkpoint

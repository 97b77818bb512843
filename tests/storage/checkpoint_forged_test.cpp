// Tests checkpoints forged to do harm: their checksums are right (anybody can compute them), their content is
// not. Each is refused with exit code 65 by its file's name, in little memory, and an older checkpoint is
// taken.
#include <spdlog/fmt/fmt.h>
#include <sys/resource.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/counter_random.h"
#include "tests/storage/checkpoint_support.h"
#include "tests/support/bad_json.h"

namespace sc::checkpoint {
namespace {

using namespace sc::checkpoint::test;  // NOLINT
using sc::test::bad_json;
using sc::test::BadJson;
using sc::test::expect_refused;
using sc::test::repeated;
using Json = nlohmann::ordered_json;

constexpr std::size_t kHeadBytes = 29;  // of the line with the sum, from "{" on

/// `text` with its first kHeadBytes, a blank place, replaced by the checksum line with which a manifest
/// begins.
std::string summed(const std::string& text) {
  const std::string rest = text.substr(kHeadBytes);
  return "{\"xxh3\": \"" + hex_of(sum_of(as_bytes(rest))) + "\",\n" + rest;
}

long peak_kb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

class Forged : public InTempDir {
 protected:
  void SetUp() override {
    older_ = save(*ops_, dir_.path(), 1, 2, kSmallModel);
    newest_ = save(*ops_, dir_.path(), 2, 2, kSmallModel);
    good_ = read_file(*ops_, newest_ / kManifestName);
  }
  void put(const std::string& name, const std::string& content) {
    ops_->create(newest_ / name)->append(as_bytes(content));
  }
  /// Overwrites the manifest with a changed copy whose checksum is valid again.
  void forge(const std::function<void(Json&)>& change) {
    Json json = Json::parse(good_);
    change(json);
    json.erase("xxh3");
    put(kManifestName, summed(std::string(kHeadBytes, ' ') + json.dump(1).substr(2) + "\n"));
  }
  /// Overwrites the manifest with `value` at the JSON pointer `at`, and a valid checksum.
  void forge(const std::string& at, const Json& value) {
    forge([&](Json& json) { json[Json::json_pointer(at)] = value; });
  }
  /// The error, without its fix, of reading the newest checkpoint, which a search for a whole one passes
  /// over.
  std::string refusal() {
    const std::string said = input_error([&] { Reader(*ops_, newest_).verify(); }, newest_.string());
    const Newest found = newest_whole(*ops_, dir_.path());
    EXPECT_EQ(found.found ? found.found->step : 0, said == "no InputError" ? 2 : 1) << said;
    return without_fix(said);
  }

  Path older_, newest_;
  std::string good_;
};

TEST_F(Forged, TheHelperMakesWhatAReaderTakes) {
  EXPECT_EQ(summed(good_), good_);
  forge([](Json& /*json*/) {});
  EXPECT_EQ(refusal(), "no InputError");
}

TEST_F(Forged, WhatNoJsonMayBe) {
  for (const BadJson& bad : bad_json("{" + good_.substr(kHeadBytes))) {
    if (bad.text.empty()) continue;
    const std::string text = summed(std::string(kHeadBytes - 1, ' ') + bad.text);
    expect_refused(bad, "65|", input_error([&] { (void)manifest_of_text(text, "M"); }));
    put(kManifestName, text);
    EXPECT_EQ(refusal().substr(0, 20), "65|DIR/manifest.json") << bad.name;
  }
}

TEST_F(Forged, SumsOnTheirWayToTheManifest) {
  const FileSums sums{"rank-0001.safetensors", 1000, 100, 0x1, {0xffffffffffffffffU, 0, 0xab}};
  for (const BadJson& bad : bad_json(text_of(sums)))
    expect_refused(bad, "65|", input_error([&] { (void)sums_of_text(bad.text, "rank 1"); }));
}

TEST_F(Forged, AFileWithoutAHeader) {
  put("rank-0000.safetensors", "");
  for (const std::int64_t claimed :
       {std::int64_t{0}, std::int64_t{7}, std::int64_t{8}, std::int64_t{9}, std::int64_t{1} << 60}) {
    forge([&](Json& json) {
      json["files"][0].update({{"bytes", 0},
                               {"header_bytes", claimed},
                               {"header_sum", hex_of(sum_of(std::vector<std::byte>(8)))},
                               {"block_sums", ""}});
    });
    EXPECT_EQ(
        refusal(),
        "65|DIR/rank-0000.safetensors: the header is damaged, or the file is another checkpoint's or rank's")
        << claimed;
  }
}

// A header length is read as 64 bits without a sign; adding its own 8 bytes overflows for these lengths.
TEST_F(Forged, ALengthThatOverflows) {
  for (const std::uint64_t length :
       {0x7fffffffffffffffU, 0x7ffffffffffffff8U, 0xfffffffffffffff8U, 0xffffffffffffffffU}) {
    std::string file(16, '\0');
    std::memcpy(file.data(), &length, sizeof(length));
    put("rank-0000.safetensors", file);
    for (const std::int64_t claimed : {std::int64_t{8}, std::int64_t{16}, std::int64_t{0}, std::int64_t{7}}) {
      const std::string header = file.substr(0, static_cast<std::size_t>(claimed));
      forge([&](Json& json) {
        json["files"][0].update({{"bytes", 16},
                                 {"header_bytes", claimed},
                                 {"header_sum", hex_of(sum_of(as_bytes(header)))},
                                 {"block_sums", ""}});
      });
      EXPECT_EQ(refusal().substr(0, 28), "65|DIR/rank-0000.safetensors") << length << " " << claimed;
    }
  }
}

TEST_F(Forged, AManifestOfEightGigabytesIsNotRead) {
  const long before = peak_kb();
  std::filesystem::resize_file(newest_ / kManifestName, std::uintmax_t{1} << 33U);
  EXPECT_EQ(refusal(), "65|DIR/manifest.json: is larger than 8 MiB: nothing of its kind needs that much");
  EXPECT_LT(peak_kb() - before, 8000);
}

TEST_F(Forged, ValuesThatWouldTakeAllMemory) {
  const long before = peak_kb();
  for (const std::string& many :
       {repeated("[],", 1'000'000) + "[]", repeated("{\"a\":[]},", 300'000) + "{}"}) {
    const std::size_t begin = good_.find("\"extra\": {") + 10;
    put(kManifestName, summed(good_.substr(0, begin) + "\"many\": [" + many + "]," + good_.substr(begin)));
    EXPECT_NE(refusal().find("holds more values than any file of its kind"), std::string::npos);
  }
  EXPECT_LT(peak_kb() - before, 64000);
}

TEST_F(Forged, ValuesOutOfRange) {
  forge([](Json& json) { json["tensors"].push_back(json["tensors"][0]); });
  EXPECT_EQ(refusal(), "65|DIR/manifest.json: \"tensors[3]\" is \"wte.weight\" a second time");
  forge("/scaler/scale", 0);
  EXPECT_EQ(refusal(), "65|DIR/manifest.json: \"scaler.scale\" must be above 0, not 0");
  forge("/step", 18446744073709551615U);
  EXPECT_EQ(refusal().substr(0, 40), "65|DIR/manifest.json: \"step\" must be a w");
  for (const char* key : {"step", "updates", "rows", "tokens", "tokens_per_step"}) {
    forge(std::string("/") + key, std::numeric_limits<std::int64_t>::max());
    EXPECT_EQ(refusal(), fmt::format("65|DIR/manifest.json: \"{}\" must be a whole number from 0 to "
                                     "1152921504606846976, not 9223372036854775807",
                                     key));
  }
}

TEST_F(Forged, EscapeCodesAreShown) {
  forge("/files/0/name", "\x1b[2J\x1b]0;title\x07");
  EXPECT_EQ(refusal(),
            "65|DIR/manifest.json: \"files[0].name\" must be \"rank-0000.safetensors\", not "
            "\"\\u001b[2J\\u001b]0;title\\u0007\"");
}

/// Replaces the newest checkpoint by a whole one with changed entries.
class ForgedEntries : public Forged {
 protected:
  std::string refusal_of(const std::function<void(std::vector<Entry>&)>& change) {
    Entries entries = cut(1, kSmallModel);
    change(entries[0]);
    remove_tree(*ops_, newest_);
    ops_->make_dir(newest_);
    Manifest manifest = manifest_of(2, 1, kSmallModel);
    write_files(*ops_, newest_, entries, manifest);
    put(kManifestName, text_of(manifest));
    return refusal();
  }
};

TEST_F(ForgedEntries, APurposeInAnotherDtype) {
  EXPECT_EQ(refusal_of([](auto& /*entries*/) {}), "no InputError");
  for (const std::string purpose : {"master", "momentum", "variance"}) {
    const std::string said = refusal_of([&](std::vector<Entry>& entries) {
      for (Entry& entry : entries) {
        if (entry.key.purpose == purpose) entry.dtype = DType::i32;  // the bytes stay
      }
    });
    EXPECT_EQ(said, "65|DIR/rank-0000.safetensors: h.0.attn.c_attn.weight@" + purpose +
                        "[0:108] is i32: no " + purpose + " is saved so");
  }
}

TEST_F(ForgedEntries, WhatIsInFlightIsNoTensorOfTheModel) {
  const auto with = [&](const std::string& name, Range range) {
    return refusal_of([&](std::vector<Entry>& entries) {
      entries.push_back({{name, kInFlight}, range, DType::f32});
    });
  };
  EXPECT_EQ(with("other", {0, 5}), "no InputError");
  const std::string rest = " is not one whole tensor beside the model's";
  EXPECT_EQ(with("wte.weight", {0, 1000}),
            "65|DIR/rank-0000.safetensors: wte.weight@in_flight[0:1000]" + rest);
  EXPECT_EQ(with("other", {2, 5}), "65|DIR/rank-0000.safetensors: other@in_flight[2:5]" + rest);
}

// Another process that cuts off a file while it is being read causes an error, and no signal.
TEST_F(Forged, AFileThatIsCutOffWhileItIsRead) {
  const Path file = newest_ / "rank-0001.safetensors";
  Reader reader(*ops_, newest_);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  const std::string cut_off = "65|DIR/rank-0001.safetensors: was cut off while it was read";
  EXPECT_EQ(without_fix(input_error([&] { reader.verify(); }, newest_.string())), cut_off);
  EXPECT_EQ(without_fix(input_error(
                [&] {
                  (void)read(reader, {"ln_f.bias", "variance"}, {0, 1});
                },
                newest_.string())),
            cut_off);
}

/// `text` with a few places changed, the same ones for the same `turn`.
std::string mutated(std::string text, std::uint64_t turn) {
  static const std::vector<std::string> kWords = {"{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  "\"",
                                                  ",",
                                                  ":",
                                                  "-1",
                                                  "1e400",
                                                  "null",
                                                  "9223372036854775807",
                                                  "18446744073709551616",
                                                  "\\",
                                                  "\\u0000",
                                                  "[[",
                                                  "]}",
                                                  "{\"",
                                                  "\"a\":",
                                                  std::string(1, '\0'),
                                                  "\xff"};
  for (std::uint64_t k = 0; k < 1 + turn % 4; ++k) {
    const std::uint64_t draw = mix64(turn * 16 + k);
    const std::size_t at = (draw >> 8U) % text.size(),
                      length = std::min<std::size_t>((draw >> 40U) % 9, text.size() - at);
    if (draw % 3 == 0) text[at] = static_cast<char>(draw >> 48U);
    if (draw % 3 == 1) text.replace(at, length, kWords[(draw >> 48U) % kWords.size()]);
    if (draw % 3 == 2) text.insert(at, text.substr((draw >> 32U) % text.size(), 40));
  }
  return text;
}

TEST_F(Forged, NoBytesOfAManifestDoMoreThanRefuse) {
  int refused = 0;
  for (std::uint64_t turn = 0; turn < 5000; ++turn) {
    const std::string text = summed(std::string(kHeadBytes, ' ') + mutated(good_.substr(kHeadBytes), turn));
    const std::string said = input_error([&] { (void)manifest_of_text(text, "M"); });
    if (said != "no InputError") ++refused;
    EXPECT_TRUE(said == "no InputError" || said.substr(0, 3) == "65|") << turn << ": " << said;
  }
  EXPECT_GT(refused, 3000);
  EXPECT_LT(refused, 5000);
}

TEST_F(Forged, NoBytesOfAHeaderDoMoreThanRefuse) {
  const std::string name = "rank-0000.safetensors", good = read_file(*ops_, newest_ / name);
  std::uint64_t length = 0;
  std::memcpy(&length, good.data(), sizeof(length));
  int refused = 0;
  for (std::uint64_t turn = 0; turn < 1000; ++turn) {
    const std::string json = mutated(good.substr(8, length), turn);
    const std::uint64_t size = json.size();
    std::string head(8, '\0');
    std::memcpy(head.data(), &size, sizeof(size));
    head += json;
    const std::string file = head + good.substr(8 + length);
    put(name, file);
    forge([&](Json& manifest) {
      manifest["files"][0].update({{"bytes", file.size()},
                                   {"header_bytes", head.size()},
                                   {"header_sum", hex_of(sum_of(as_bytes(head)))}});
    });
    const std::string said = input_error([&] { Reader(*ops_, newest_).verify(); });
    if (said != "no InputError") ++refused;
    EXPECT_TRUE(said == "no InputError" || said.substr(0, 3) == "65|") << turn << ": " << said;
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace sc::checkpoint

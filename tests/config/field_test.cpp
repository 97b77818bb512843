#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "common/base/text.h"
#include "common/config/field_table.h"
#include "common/config/workload_table.h"
#include "tests/config/support.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

Value flag(const std::string& text) { return {Value::Form::flag, text}; }

template <class V>
std::string parse_failure(const Codec<V>& codec, const Value& value) {
  try {
    (void)codec.parse(value);
  } catch (const FieldError& error) {
    return error.what();
  }
  return "";
}

TEST(Field, IntegersAreWholeAndInRange) {
  const auto codec = integer(1, 1000);
  test::expect_counts({{codec.parse(flag("12")), 12},
                       {codec.parse(flag("1e3")), 1000},
                       {codec.parse({Value::Form::integer, "1"}), 1}});
  test::expect_texts({{codec.range, "1 .. 1000"},
                      {integer(0).range, "at least 0"},
                      {parse_failure(codec, flag("0")), "0 is outside its range, 1 .. 1000"},
                      {parse_failure(codec, flag("1001")), "1001 is outside its range, 1 .. 1000"},
                      {parse_failure(codec, flag("2.5")), "\"2.5\" is not an integer"},
                      {parse_failure(codec, flag("12x")), "\"12x\" is not an integer"},
                      {parse_failure(codec, flag("")), "\"\" is not an integer"},
                      {parse_failure(codec, {Value::Form::text, "12"}), "\"12\" is not an integer"},
                      {parse_failure(codec, {Value::Form::boolean, "true"}), "true is not an integer"},
                      {parse_failure(codec, {Value::Form::integer, "99999999999999999999"}),
                       "99999999999999999999 is not an integer"}});
}

TEST(Field, SeedsUseAll64Bits) {
  EXPECT_EQ(seed().parse({Value::Form::integer, "18446744073709551615"}),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse_failure(seed(), flag("-1")), "\"-1\" is not an integer in 0 .. 2^64 - 1");
}

TEST(Field, RealsAreFiniteAndRoundTrip) {
  const auto codec = real({.low = 0, .high = 1, .open_high = true});
  EXPECT_DOUBLE_EQ(codec.parse(flag("1e-8")), 1e-8);
  test::expect_texts(
      {{codec.range, "0 <= x < 1"},
       {real({.low = 0, .open_low = true}).range, "above 0"},
       {codec.format(codec.parse(flag("0.9990"))), "0.999"},
       {codec.format(codec.parse(flag("-0.0"))), "0"},
       {parse_failure(codec, flag("1")), "1 is outside its range, 0 <= x < 1"},
       {parse_failure(codec, flag("nan")), "\"nan\" is not a finite number"},
       {parse_failure(codec, flag("inf")), "\"inf\" is not a finite number"},
       {parse_failure(codec, {Value::Form::boolean, "false"}), "false is not a finite number"}});
}

TEST(Field, SwitchesTakeFourWords) {
  const auto codec = on_off();
  test::expect_texts(
      {{codec.format(codec.parse(flag("on"))), "on"},
       {codec.format(codec.parse({Value::Form::boolean, "true"})), "on"},
       {codec.format(codec.parse(flag("false"))), "off"},
       {codec.format(codec.parse({Value::Form::text, "off"})), "off"},
       {codec.format(false), "off"},
       {parse_failure(codec, flag("yes")), "\"yes\" is none of on, off, true, false"},
       {parse_failure(codec, {Value::Form::integer, "1"}), "1 is none of on, off, true, false"}});
}

TEST(Field, ChoicesSayWhatIsNear) {
  const auto codec = choice<int>({{"keep", 0}, {"recompute_gelu", 1}, {"recompute", 2}});
  EXPECT_EQ(codec.parse(flag("recompute")), 2);
  EXPECT_EQ(codec.format(1), "recompute_gelu");
  EXPECT_EQ(parse_failure(codec, flag("recompte")),
            "\"recompte\" is none of keep, recompute_gelu, recompute; did you mean \"recompute\"?");
  EXPECT_EQ(parse_failure(codec, flag("all")), "\"all\" is none of keep, recompute_gelu, recompute");
}

TEST(Field, TextIsNeitherEmptyNorSeveralLines) {
  test::expect_texts(
      {{text().parse(flag("a b")), "a b"},
       {parse_failure(text(), flag("")), "it is empty"},
       {parse_failure(text(), {Value::Form::text, "a\nseed=7"}), "control characters are not allowed"},
       {parse_failure(text(), {Value::Form::integer, "7"}), "7 is not text: it needs quotes"}});
}

TEST(Field, SizesHaveUnits) {
  const std::map<std::string, std::int64_t> sizes = {{"6GB", 6'000'000'000},
                                                     {"512MiB", 536'870'912},
                                                     {"1e9", 1'000'000'000},
                                                     {"1.5kB", 1500},
                                                     {"500KB", 500'000},
                                                     {"4.35MB", 4'350'000},
                                                     {"7B", 7}};
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(parse_bytes(text), Bytes(bytes)) << text;
  EXPECT_EQ(size().format(Bytes(7)), "7");
  for (const std::string bad : {"", "GB", "6 GB", "6gb", "6G", "x", "6GBx", "inf", "nan"}) {
    EXPECT_NE(parse_failure(size(), flag(bad)), "") << bad;
  }
  for (const std::string bad : {"-1", "0", "0.5B", "1e30", "1.0005kB"}) {
    EXPECT_EQ(parse_failure(size(), flag(bad)), "\"" + bad + "\" is not a whole number of bytes, at least 1");
  }
}

TEST(FieldTable, AWordOrANumber) {
  Options options;
  const FieldSet fields = options_table().bind(options);
  fields.set("bucket", flag("model"), "x");
  EXPECT_EQ(options.bucket.kind, Bucket::Kind::model);
  fields.set("bucket", flag("2e8"), "x");
  EXPECT_EQ(options.bucket.kind, Bucket::Kind::elements);
  EXPECT_EQ(options.bucket.elements, 200'000'000);
  EXPECT_EQ(fields.find("bucket")->get(), "200000000");
  EXPECT_EQ(refusal([&fields] { fields.set("bucket", flag("0"), "x"); }),
            "x: bucket: 0 is outside its range, at least 1\n"
            "  fix: bucket takes choice or integer: tensor, unit, model, or at least 1 (default unit)");
  EXPECT_EQ(refusal([&fields] { fields.set("bucket", flag("modle"), "x"); }),
            "x: bucket: \"modle\" is none of tensor, unit, model; did you mean \"model\"?\n"
            "  fix: bucket takes choice or integer: tensor, unit, model, or at least 1 (default unit)");
}

TEST(FieldTable, TwoFieldsOfOneNameAreAMistakeOfTheProgram) {
  FieldTable<Options> table = options_table();
  table.add(
      {"overlap", "", "again"}, on_off(), [](auto& o) -> auto& { return o.overlap; });
  Options options;
  EXPECT_THROW((void)table.bind(options), std::logic_error);
}

TEST(FieldTable, DefaultsAreTheStructs) {
  Options options;
  options.verify_replicas = 99;
  const FieldSet fields = options_table().bind(options);
  EXPECT_EQ(fields.find("verify_replicas")->default_text, "10");
  EXPECT_EQ(fields.find("verify_replicas")->get(), "99");
}

TEST(FieldTable, CanonicalTextIsSortedAndReadsBack) {
  Options options;
  options.overlap = false;
  const FieldSet fields = options_table().bind(options);
  EXPECT_EQ(fields.canonical_text(), "bucket=unit\noverlap=off\nverify_replicas=10\n");
  EXPECT_EQ(fields.hash(), hex_sha256("bucket=unit\noverlap=off\nverify_replicas=10\n"));
}

TEST(Explain, TellsAllThatIsKnownOfAKey) {
  Options options;
  options.verify_replicas = 5;
  const FieldSet fields = options_table().bind(options);
  EXPECT_EQ(explain("verify_replicas", {&fields}, {{"verify_replicas", "--set verify_replicas=5"}}),
            "verify_replicas\n"
            "  compare the replicas every so many steps; 0 = never\n"
            "  type     integer, in steps\n"
            "  allowed  at least 0\n"
            "  default  10\n"
            "  value    5, from --set verify_replicas=5\n");
  EXPECT_NE(explain("overlap", {&fields}, {}).find("value    on, from the default"), std::string::npos);
}

TEST(Explain, GroupsAndAll) {
  Workload workload;
  Options options;
  const FieldSet a = workload_fields().bind(workload);
  const FieldSet b = options_table().bind(options);
  const std::string model = explain("model", {&a, &b}, {});
  EXPECT_NE(model.find("model.layers\n"), std::string::npos);
  EXPECT_EQ(model.find("batch."), std::string::npos);
  const std::string all = explain("all", {&a, &b}, {});
  for (const std::string& path : a.paths()) EXPECT_NE(all.find(path + "\n"), std::string::npos) << path;
  EXPECT_NE(all.find("bucket\n"), std::string::npos);
  EXPECT_EQ(refusal([&] {
              (void)explain("model.layer", {&a, &b}, {});
            }),
            "--explain model.layer: there is no key \"model.layer\"\n  fix: --explain model.layers");
  EXPECT_EQ(refusal([&] {
              (void)explain("zzzzzzzzz", {&a, &b}, {});
            }),
            "--explain zzzzzzzzz: there is no key \"zzzzzzzzz\"\n  fix: --explain all lists every key");
}

TEST(NearestKey, BySpellingOrByLastPart) {
  Workload workload;
  const FieldSet fields = workload_fields().bind(workload);
  test::expect_texts({{nearest_key("batch.micr", {&fields}), "batch.micro"},
                      {nearest_key("micro", {&fields}), "batch.micro"},
                      {nearest_key("train.lr", {&fields}), "optim.lr"},
                      {nearest_key("zzzzzzzzz", {&fields}), ""}});
}

}  // namespace
}  // namespace sc

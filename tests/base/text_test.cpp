#include "common/base/text.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/answers.h"

namespace sc {
namespace {

using test::expect_texts;

TEST(Text, Bytes) {
  expect_texts({{human_bytes(Bytes(0)), "0 B"},
                {human_bytes(Bytes(999)), "999 B"},
                {human_bytes(Bytes(1000)), "1.00 kB"},
                {human_bytes(Bytes(1'500'000)), "1.50 MB"},
                {human_bytes(Bytes(999'999)), "1.00 MB"},
                {human_bytes(Bytes(24'920'000'000)), "24.92 GB"},
                {human_bytes(Bytes(1'234'000'000'000'000)), "1234.00 TB"},
                {human_bytes(Bytes(-1500)), "-1.50 kB"}});
}

TEST(Text, Counts) {
  expect_texts({{human_count(0), "0"},
                {human_count(999), "999"},
                {human_count(1000), "1,000"},
                {human_count(124'439'808), "124,439,808"},
                {human_count(-999), "-999"},
                {human_count(-1000), "-1,000"},
                {human_count(INT64_MIN), "-9,223,372,036,854,775,808"}});
}

TEST(Text, Seconds) {
  expect_texts({{human_seconds(0.4), "0 s"},
                {human_seconds(59.6), "1 min 00 s"},
                {human_seconds(185), "3 min 05 s"},
                {human_seconds(3725), "1 h 02 min"}});
}

TEST(Text, NearestIsNearOrNothing) {
  const std::vector<std::string> words = {"model.layers", "batch.micro", "steps"};
  expect_texts({{nearest("model.layer", words), "model.layers"},
                {nearest("stpes", words), "steps"},
                {nearest("batch.macros", words), "batch.micro"},
                {nearest("nothing like it", words), ""},
                {nearest("", words), ""},
                {nearest("ab", {"xy"}), ""},  // two of two letters differ, so there is no likeness
                {nearest("steps", {}), ""}});
}

TEST(Text, TablesAlignWordsLeftAndNumbersRight) {
  EXPECT_EQ(table({{"name", "bytes", "what"}, {"a", "5", "x"}, {"longer", "1,000", "y"}, {"b", "-12", ""}}),
            "  name    bytes  what\n"
            "  a           5  x\n"
            "  longer  1,000  y\n"
            "  b         -12\n");
}

// The examples of FIPS 180-4, and lengths around the block size computed with Python's hashlib.
TEST(Sha256, PublishedVectors) {
  expect_texts(
      {{hex_sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
       {hex_sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
       {hex_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
       {hex_sha256(std::string(1'000'000, 'a')),
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
       {hex_sha256(std::string(55, 'a')), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
       {hex_sha256(std::string(56, 'a')), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
       {hex_sha256(std::string(63, 'a')), "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
       {hex_sha256(std::string(64, 'a')), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
       {hex_sha256(std::string(65, 'a')),
        "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"}});
}

TEST(Sha256, BytesAreUnsigned) {
  EXPECT_EQ(hex_sha256(std::string("\x00\xff\x80", 3)),
            "f742b965f156c10374bc23aea96e3a8aff8facd6fc079defeaa30219ad86f211");
}

}  // namespace
}  // namespace sc

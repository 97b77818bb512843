// Tests each way in which a safetensors header can be wrong, with the exact message.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "common/storage/safetensors.h"
#include "tests/storage/temp_dir.h"

namespace sc {
namespace {

using Accepted = test::InTempDir;

/// A file of `header` and `data` zero bytes.
///   length  the header length that the file claims; negative: the true one
std::string file_of(const std::string& header, std::size_t data = 0, std::int64_t length = -1) {
  const std::uint64_t claimed = length < 0 ? header.size() : static_cast<std::uint64_t>(length);
  std::string file(sizeof(claimed), '\0');
  std::memcpy(file.data(), &claimed, sizeof(claimed));
  return file + header + std::string(data, '\0');
}

struct Case {
  std::string name, file, message;
};

const std::string kA =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";  // one tensor, object still open

const Case kCases[] = {
    {"EmptyFile", "", "0 bytes; a safetensors file starts with an 8-byte header length"},
    {"SevenBytes", "1234567", "7 bytes; a safetensors file starts with an 8-byte header length"},
    {"PointerOfGitLfs", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n",
     "is a pointer of Git LFS and not the file itself, which has 7 bytes"},
    {"LengthAboveTheLimit", file_of("{}", 0, 16'000'001),
     "header length 16000001 at byte 0 is above the limit of 16000000"},
    {"LengthOfAllOnes", std::string(8, '\xff') + "{}",
     "header length 18446744073709551615 at byte 0 is above the limit of 16000000"},
    {"LengthPastTheFile", file_of("{}", 0, 3), "header of 3 bytes at byte 8 ends past the file's 10 bytes"},
    {"NoHeader", file_of(""), "the header at byte 8 does not start with '{'"},
    {"LeadingBlank", file_of(" {}"), "the header at byte 8 does not start with '{'"},
    {"HeaderIsAnArray", file_of("[]"), "the header at byte 8 does not start with '{'"},
    {"CutOffJson", file_of(kA, 8), ":1:54: is not JSON: unexpected end of input; expected '}'"},
    {"NotJson", file_of("{a:1}"), ":1:2: is not JSON: invalid literal; expected string literal"},
    {"TextAfterTheObject", file_of("{} x"), ":1:4: is not JSON: invalid literal; expected end of input"},
    {"InvalidUtf8", file_of("{\"\xff\":1}"),
     ":1:3: is not JSON: invalid string: ill-formed UTF-8 byte; expected string literal"},
    {"TwoTensorsOfOneName", file_of(kA + R"(,"a":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})", 8),
     ":1:58: key \"a\" is given twice"},
    {"AFieldTwice", file_of(R"({"a":{"dtype":"F32","dtype":"F32"}})"), ":1:28: key \"dtype\" is given twice"},
    {"UnknownField", file_of(R"({"a":{"dtype":"F32","size":8}})"), "\"a.size\" is not a key of it"},
    {"TensorIsANumber", file_of(R"({"a":5})"), "\"a\" must be an object, not 5"},
    {"NoDtype", file_of(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8), "\"a.dtype\" is missing"},
    {"NoShape", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8), "\"a.shape\" is missing"},
    {"NoOffsets", file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "\"a.data_offsets\" is missing"},
    {"UnknownDtype", file_of(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8),
     "\"a.dtype\" is F33, which the format lacks"},
    {"DtypeIsANumber", file_of(R"({"a":{"dtype":32}})"), "\"a.dtype\" must be a text, not 32"},
    {"ShapeIsANumber", file_of(R"({"a":{"shape":2}})"), "\"a.dtype\" is missing"},
    {"NegativeShape", file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
     "\"a.shape[0]\" must be a whole number from 0 to 9223372036854775807, not -2"},
    {"FractionalShape", file_of(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8),
     "\"a.shape[0]\" must be a whole number from 0 to 9223372036854775807, not 2.0"},
    {"ShapeOf2To63", file_of(R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8),
     "\"a.shape[0]\" must be a whole number from 0 to 9223372036854775807, not 9223372036854775808"},
    {"NestedShape", file_of(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8),
     "\"a.shape[0]\" must be a whole number from 0 to 9223372036854775807, not a list"},
    {"ProductOverflows",
     file_of(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8),
     "\"a.shape\" has more elements than 64 bits can count"},
    {"BytesOverflow",
     file_of(R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,8]}})", 8),
     "\"a.shape\" has more elements than 64 bits can count"},
    {"OneOffset", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}})", 8),
     "\"a.data_offsets\" must be two offsets"},
    {"ThreeOffsets", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4,8]}})", 8),
     "\"a.data_offsets\" must be two offsets"},
    {"OffsetsBackwards", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
     "\"a.data_offsets\" end before they begin"},
    {"SizeMismatch", file_of(R"({"a":{"dtype":"F16","shape":[2, 3],"data_offsets":[0,8]}})", 8),
     "\"a\" takes 12 bytes (F16 [2, 3]), and its data_offsets [0, 8] hold 8"},
    {"HalfBytes", file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1),
     "\"a.shape\" has 3 elements of 4 bits, which are not whole bytes"},
    {"PastTheData", file_of(kA + "}", 7), "tensor \"a\": data_offsets [0, 8] reach past the 7 bytes of data"},
    {"Overlap", file_of(kA + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
     "tensor \"b\" begins at data byte 4, inside tensor \"a\", which ends at 8"},
    {"HoleBetween", file_of(kA + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", 16),
     "data bytes 8 to 12, before tensor \"b\", belong to no tensor"},
    {"HoleAtTheStart", file_of(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
     "data bytes 0 to 4, before tensor \"b\", belong to no tensor"},
    {"TrailingBytes", file_of(kA + "}", 11), "the last 3 bytes of the file belong to no tensor"},
    {"MetadataIsAString", file_of(R"({"__metadata__":"x"})"),
     "\"__metadata__\" must be an object, not \"x\""},
    {"MetadataHoldsANumber", file_of(R"({"__metadata__":{"epoch":3}})"),
     "\"__metadata__.epoch\" must be a text, not 3"},
    {"MetadataTwice", file_of(R"({"__metadata__":{"a":"x","a":"y"}})"), ":1:29: key \"a\" is given twice"},
};

class Malformed : public test::InTempDir, public ::testing::WithParamInterface<Case> {};

TEST_P(Malformed, IsRefusedWithItsReason) {
  put("a.safetensors", GetParam().file);
  const std::string error = error_of([&] { SafetensorsReader(dir_ / "a.safetensors"); });
  EXPECT_EQ(test::without_fix(error), "65|DIR/a.safetensors" +
                                          (GetParam().message.starts_with(":1:") ? "" : std::string(": ")) +
                                          GetParam().message);
  EXPECT_GT(error.size(), error.rfind('|') + 1) << "a fix must be named";
}

INSTANTIATE_TEST_SUITE_P(Headers, Malformed, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST_F(Accepted, HeadersAtTheEdgeOfTheFormat) {
  const std::map<std::string, std::size_t> all = {
      {file_of("{}"), 0},
      {file_of("{} \n "), 0},
      {file_of(kA + "}", 8), 1},
      {file_of(R"({"b":{"shape":[],"data_offsets":[4,8],"dtype":"F32"},)"
               R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
               8),
       2},
      {file_of(R"({"a":{"dtype":"F32","shape":[9223372036854775807,0,9],"data_offsets":[0,0]}})"), 1}};
  for (const auto& [content, tensors] : all) {
    put("a.safetensors", content);
    EXPECT_EQ(SafetensorsReader(dir_ / "a.safetensors").tensors().size(), tensors) << content;
  }
}

}  // namespace
}  // namespace sc

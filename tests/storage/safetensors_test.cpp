// Tests reading and writing safetensors against files of the Python package (golden/make_golden.py).
#include "common/storage/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "common/storage/atomic_dir.h"
#include "tests/storage/temp_dir.h"

namespace sc {
namespace {

using test::input_error;
using SafetensorsFiles = test::InTempDir;

const Path kGolden = "tests/storage/golden";

template <class T>
std::vector<T> values(const SafetensorsReader& reader, std::string_view name) {
  const auto bytes = reader.bytes(reader.at(name));
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

TEST(SafetensorsReader, ReadsWhatThePythonPackageWrote) {
  const SafetensorsReader reader(kGolden / "python.safetensors");
  EXPECT_EQ(reader.tensors().size(), 10U);
  EXPECT_EQ(reader.metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"note", "line\nbreak"}}));
  const std::map<std::string, std::pair<DType, std::vector<std::int64_t>>> shapes = {
      {"matrix.weight", {DType::f32, {3, 4}}},
      {"half", {DType::f16, {3}}},
      {"double", {DType::f64, {2, 1}}},
      {"long", {DType::i64, {2}}},
      {"int", {DType::i32, {1}}},
      {"bytes", {DType::u8, {3}}},
      {"scalar", {DType::f32, {}}},
      {"empty", {DType::f32, {2, 0, 5}}}};
  for (const auto& [name, expected] : shapes)
    EXPECT_EQ(std::pair(reader.at(name).dtype.value(), reader.at(name).shape), expected) << name;
  EXPECT_EQ(reader.at("matrix.weight").numel(), Elements(12));
  EXPECT_EQ(values<float>(reader, "matrix.weight"),
            (std::vector<float>{-1.25F, -1, -0.75F, -0.5F, -0.25F, 0, 0.25F, 0.5F, 0.75F, 1, 1.25F, 1.5F}));
  EXPECT_EQ(values<std::uint16_t>(reader, "half"), (std::vector<std::uint16_t>{0x3e00, 0xc000, 0x7bff}));
  EXPECT_EQ(values<double>(reader, "double"), (std::vector<double>{1e300, -0.0}));
  EXPECT_EQ(values<std::int64_t>(reader, "long"), (std::vector<std::int64_t>{-1, std::int64_t{1} << 62}));
  EXPECT_EQ(values<std::int32_t>(reader, "int"), (std::vector<std::int32_t>{-7}));
  EXPECT_EQ(values<std::uint8_t>(reader, "bytes"), (std::vector<std::uint8_t>{0, 127, 255}));
  EXPECT_EQ(values<float>(reader, "scalar"), (std::vector<float>{3.25F}));
  EXPECT_TRUE(reader.bytes(reader.at("empty")).empty());
  EXPECT_NE(reader.find("name \"quoted\" and \xc3\xa9"), nullptr);
}

TEST(SafetensorsReader, ListsTypesThatItDoesNotComputeWith) {
  const SafetensorsReader reader(kGolden / "python.safetensors");
  const SafeTensor& flags = reader.at("listed.only");
  EXPECT_EQ(flags.stored_dtype, "BOOL");
  EXPECT_FALSE(flags.dtype.has_value());
  EXPECT_EQ(values<std::uint8_t>(reader, "listed.only"), (std::vector<std::uint8_t>{1, 0}));
}

TEST(SafetensorsReader, AMissingTensorNamesTheNearest) {
  const SafetensorsReader reader(kGolden / "python.safetensors");
  EXPECT_EQ(reader.find("absent"), nullptr);
  EXPECT_EQ(
      input_error([&] { (void)reader.at("matrix.wieght"); }),
      "65|tests/storage/golden/python.safetensors: no tensor \"matrix.wieght\" among its 10; the nearest is "
      "\"matrix.weight\"|give weights of the model that the workload describes");
  EXPECT_EQ(input_error([&] { (void)reader.at("h.0.attn.c_attn.weight.of.another"); }),
            "65|tests/storage/golden/python.safetensors: no tensor \"h.0.attn.c_attn.weight.of.another\" "
            "among its 10|give "
            "weights of the model that the workload describes");
}

const std::vector<SafeTensorSpec> kSpecs = {
    {"wte", DType::f32, {2, 3}}, {"steps", DType::i64, {2}}, {"empty", DType::f32, {0, 4}},
    {"loss", DType::f64, {}},    {"ids", DType::i32, {3}},   {"flag \"x\"", DType::u8, {1}},
};

template <class T>
std::span<const std::byte> raw(const std::vector<T>& host) {
  return std::as_bytes(std::span<const T>(host));
}

void write_ours(FileOps& ops, const Path& path) {
  atomic_write_file(ops, path, [&](File& file) {
    SafetensorsWriter out(file, kSpecs, {{"format", "pt"}, {"step", "12"}});
    const std::vector<float> wte = {0, 0.5F, 1, 1.5F, 2, 2.5F};
    out.write("wte", raw(wte).first(5));  // pieces need not be whole elements
    out.write("wte", raw(wte).subspan(5));
    out.write("steps", raw(std::vector<std::int64_t>{-3, std::int64_t{1} << 40}));
    out.write("empty", {});
    out.write("loss", raw(std::vector<double>{2.5}));
    out.write("ids", raw(std::vector<std::int32_t>{5, 6, 7}));
    out.write("flag \"x\"", raw(std::vector<std::uint8_t>{255}));
    out.finish();
  });
}

TEST_F(SafetensorsFiles, WritesTheFileThatPythonRead) {
  write_ours(*ops_, dir_ / "a.safetensors");
  const std::string ours = read_file(*ops_, dir_ / "a.safetensors");
  EXPECT_EQ(ours, read_file(*ops_, kGolden / "stagecraft.safetensors"));
  std::uint64_t header = 0;
  std::memcpy(&header, ours.data(), sizeof(header));
  EXPECT_EQ(header % 8, 0U);
}

TEST_F(SafetensorsFiles, RoundTrip) {
  write_ours(*ops_, dir_ / "a.safetensors");
  const SafetensorsReader reader(dir_ / "a.safetensors");
  ASSERT_EQ(reader.tensors().size(), kSpecs.size());
  for (std::size_t i = 0; i < kSpecs.size(); ++i) {
    const SafeTensor& tensor = reader.at(kSpecs[i].name);
    EXPECT_EQ(tensor.dtype, kSpecs[i].dtype) << tensor.name;
    EXPECT_EQ(tensor.shape, kSpecs[i].shape) << tensor.name;
  }
  EXPECT_EQ(values<float>(reader, "wte"), (std::vector<float>{0, 0.5F, 1, 1.5F, 2, 2.5F}));
  EXPECT_EQ(values<double>(reader, "loss"), (std::vector<double>{2.5}));
  EXPECT_EQ(reader.metadata().at("step"), "12");
}

TEST_F(SafetensorsFiles, CallsThatContradictTheHeaderAreErrors) {
  const std::vector<float> four(4);
  const auto file = ops_->create(dir_ / "a");
  SafetensorsWriter out(*file, {{"a", DType::f32, {4}}, {"b", DType::f32, {4}}});
  EXPECT_THROW(out.write("b", raw(four)), std::logic_error);
  EXPECT_THROW(out.finish(), std::logic_error);
  out.write("a", raw(four));
  EXPECT_THROW(out.write("a", raw(four)), std::logic_error);
  out.write("b", raw(four).first(12));
  EXPECT_THROW(out.finish(), std::logic_error);
  EXPECT_THROW(out.write("b", raw(four)), std::logic_error);
  EXPECT_THROW(SafetensorsWriter(*file, {}), std::logic_error);  // the file is not empty
  const auto other = ops_->create(dir_ / "b");
  EXPECT_THROW(SafetensorsWriter(*other, {{"a", DType::f32, {4}}, {"a", DType::f32, {4}}}), std::logic_error);
  EXPECT_THROW(SafetensorsWriter(*other, {{"a", DType::f32, {-4}}}), std::logic_error);
  EXPECT_THROW(SafetensorsWriter(*other, {{"__metadata__", DType::f32, {4}}}), std::logic_error);
}

}  // namespace
}  // namespace sc

#include "common/config/resolve.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "common/config/validate.h"
#include "common/config/workload_table.h"
#include "tests/config/support.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

Setting set(const std::string& key, const std::string& value) {
  return {key, value, "--set " + key + "=" + value};
}

TEST(Resolve, LaterSourcesWinAndAreRemembered) {
  const TempFile workload("{\"steps\": 50,\n \"model\": {\"layers\": 2, \"width\": 64}}");
  const TempFile strategy("{\"bucket\": \"model\", \"overlap\": false}", "config.json");
  Options options;
  const FieldSet fields = options_table().bind(options);
  const ResolvedConfig config =
      resolve({workload.path(), strategy.path(), {set("model.layers", "3"), set("overlap", "on")}}, fields);
  EXPECT_EQ(config.workload.steps, 50);
  const GptConfig& model = config.workload.model;
  EXPECT_EQ((std::vector{model.layers, model.width, model.heads}), (std::vector<std::int64_t>{3, 64, 4}));
  EXPECT_EQ(options.bucket.kind, Bucket::Kind::model);
  EXPECT_TRUE(options.overlap);
  test::expect_answers(
      [&](const std::string& key) {
        return strategy.shorten(workload.shorten(origin_of(config.origins, key)));
      },
      {{"steps", "w.json:1:11"},
       {"model.width", "w.json:2:34"},
       {"model.layers", "--set model.layers=3"},
       {"bucket", "config.json:1:12"},
       {"model.heads", "the default of model.heads"}});
}

TEST(Resolve, NoFilesMeansTheDefaults) {
  EXPECT_EQ(workload_text(resolve({}, FieldSet()).workload), workload_text(Workload()));
}

TEST(Resolve, EqualSettingsDoNotContradict) {
  EXPECT_EQ(resolve({"", "", {{"steps", "5", "--steps 5"}, set("steps", "5")}}, FieldSet()).workload.steps,
            5);
}

// Lesson 04 has no overlap=off; another key comes nearest to it.
TEST(Resolve, AKeyOfOtherLessonsNamesWhatToUseInstead) {
  FieldTable<Options> table;
  table.add({"prefetch", "units", "x"}, integer(0, 16), &Options::verify_replicas);
  Options options;
  try {
    (void)resolve({"", "", {set("overlap", "off")}}, table.bind(options));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(
        std::string(error.what()),
        "--set overlap=off: this lesson has no key \"overlap\"\n  fix: in lesson 04 --set prefetch=0 gathers "
        "no unit ahead; lessons 01, 02, 03 and 05 have overlap=off");
  }
}

// For names that users of other programs type first, the fix tells our name.
TEST(Resolve, WordsOfOtherProgramsAreAnswered) {
  const auto fix = [](const ConfigSources& sources) {
    try {
      (void)resolve(sources, FieldSet());
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  const std::string deepspeed = "a strategy is a lesson; docs/coverage.md has DeepSpeed's keys, one by one";
  const std::map<std::string, std::string> keys = {
      {"num_samples", "--steps N: a step takes batch.global rows of the text, each once an epoch"},
      {"max_length", "--set batch.sequence=N, at most model.context"},
      {"train_micro_batch_size_per_gpu", "--set batch.micro=N: rows of one forward and backward of a rank"},
      {"zero_optimization.allgather_partitions", deepspeed},
      {"deepspeed_config", deepspeed},
      {"nnodes", "mpirun or Slurm finds the hosts, and no address is needed: docs/cluster.md"},
      {"context-parallel-size",
       "lessons/12_context_parallel/run.sh -n RANKS; with other axes lessons/11_combined, mesh=stages x data "
       "x "
       "context x tensor"},
      {"tensor_model_parallel_size",
       "lessons/10_tensor_parallel/run.sh -n RANKS; with stages and data ranks lessons/11_combined, "
       "mesh=stages x data x tensor"}};
  for (const auto& [key, ours] : keys) {
    EXPECT_EQ(fix({"", "", {set(key, "8")}}),
              "--set " + key + "=8: \"" + key + "\" is a key of other programs\n  fix: " + ours);
  }
  EXPECT_EQ(fix({"", "zero2", {}}),
            "--strategy zero2: zero2 cannot be read\n  fix: a strategy is a lesson: lessons/03_zero2");
  EXPECT_EQ(fix({"", "", {set("zero_optimizer", "8")}}).find("other programs"), std::string::npos);
}

TEST(Resolve, AKeyOfWorkloadAndStrategyIsAMistakeOfTheProgram) {
  FieldTable<Options> table;
  table.add(
      {"steps", "", "x"}, integer(0), [](auto& o) -> auto& { return o.verify_replicas; });
  Options options;
  EXPECT_THROW((void)resolve({}, table.bind(options)), std::logic_error);
}

TEST(Resolve, DtypesFollow) {
  const auto precision = [](const std::vector<Setting>& settings) {
    return resolve({"", "", settings}, FieldSet()).workload.precision;
  };
  const PrecisionConfig plain = precision({});
  EXPECT_EQ(plain.grad_dtype, DType::f32);
  EXPECT_FALSE(plain.has_master());
  const PrecisionConfig half = precision({set("precision.dtype", "bf16")});
  EXPECT_EQ(half.grad_dtype, DType::bf16);
  EXPECT_EQ(half.reduce_dtype, DType::bf16);
  const PrecisionConfig wide =
      precision({set("precision.dtype", "bf16"), set("precision.grad_dtype", "fp32")});
  EXPECT_EQ(wide.grad_dtype, DType::f32);
  EXPECT_EQ(wide.reduce_dtype, DType::f32);
  const PrecisionConfig sums =
      precision({set("precision.dtype", "fp16"), set("precision.reduce_dtype", "fp32")});
  EXPECT_EQ(sums.grad_dtype, DType::f16);
  EXPECT_EQ(sums.reduce_dtype, DType::f32);
}

TEST(Hash, DependsOnEveryResolvedValueAndOnNothingElse) {
  const std::string base = workload_hash(Workload());
  EXPECT_EQ(base.size(), 64U);
  Workload workload;
  const FieldSet fields = workload_fields().bind(workload);
  const std::map<std::string, std::string> other = {{"model.tied", "off"},
                                                    {"data.source", "x.txt"},
                                                    {"data.tokenizer", "gpt2"},
                                                    {"data.packing", "pad_masked"},
                                                    {"data.validation_fraction", "0.1"},
                                                    {"optim.lr", "0.1"},
                                                    {"optim.beta1", "0.5"},
                                                    {"optim.beta2", "0.5"},
                                                    {"optim.eps", "0.5"},
                                                    {"optim.weight_decay", "0.5"},
                                                    {"optim.clip", "0.5"},
                                                    {"optim.schedule", "linear"},
                                                    {"optim.min_lr_fraction", "0.5"},
                                                    {"optim.nonfinite", "skip"},
                                                    {"precision.dtype", "bf16"},
                                                    {"activations", "recompute"}};
  for (const Field& field : fields.fields()) {
    if (field.path == "precision.grad_dtype" || field.path == "precision.reduce_dtype") continue;  // below
    const auto value = other.find(field.path);
    Workload changed =
        resolve({"", "", {set(field.path, value == other.end() ? "77" : value->second)}}, FieldSet())
            .workload;
    EXPECT_NE(workload_hash(changed), base) << field.path;
  }
  EXPECT_EQ(workload_hash(resolve({"", "", {set("optim.lr", "2.0e-3")}}, FieldSet()).workload), base);
}

TEST(Hash, OneConfigurationHasOneHash) {
  const auto hash = [](const std::vector<Setting>& settings) {
    return workload_hash(resolve({"", "", settings}, FieldSet()).workload);
  };
  EXPECT_EQ(hash({set("precision.grad_dtype", "fp32")}), hash({}));
  EXPECT_EQ(hash({set("precision.reduce_dtype", "fp32")}), hash({}));
  EXPECT_EQ(hash({set("precision.dtype", "bf16"), set("precision.grad_dtype", "fp32"),
                  set("precision.reduce_dtype", "fp32")}),
            hash({set("precision.dtype", "bf16"), set("precision.grad_dtype", "fp32")}));
  EXPECT_NE(hash({set("precision.dtype", "bf16"), set("precision.grad_dtype", "fp32")}),
            hash({set("precision.dtype", "bf16")}));
}

// Records of different versions compare by this hash, so a change of spelling or of a default must show here,
// and be meant.
TEST(Hash, IsStable) {
  EXPECT_EQ(
      workload_text(Workload()),
      "activations=keep\nbatch.global=12\nbatch.micro=1\nbatch.sequence=128\ndata.packing=pack\ndata.source="
      "austen\n"
      "data.tokenizer=byte\ndata.validation_fraction=0.05\ndata.validation_rows=8\nhead_chunk=4096\n"
      "model.context=128\nmodel.heads=4\nmodel.layers=4\nmodel.tied=on\nmodel.vocab=257\nmodel.width=128\n"
      "optim.beta1=0.9\noptim.beta2=0.99\noptim.clip=1\noptim.eps=1e-08\noptim.lr=0.002\noptim.min_lr_"
      "fraction=0.1\noptim.nonfinite=stop\n"
      "optim.schedule=cosine\noptim.warmup_steps=40\noptim.weight_decay=0.01\nprecision.dtype=fp32\n"
      "precision.grad_dtype=same\nprecision.reduce_dtype=same\nseed=1\nsteps=400\n");
}

std::size_t count_of_keys() {
  Workload workload;
  return workload_fields().bind(workload).fields().size();
}

TEST(Configs, FourBlocksHasEveryDefault) {
  const ResolvedConfig config = resolve({"tests/workloads/four_blocks.json", "", {}}, FieldSet());
  EXPECT_EQ(config.origins.size(), count_of_keys());
  EXPECT_EQ(workload_text(config.workload), workload_text(Workload()));
}

TEST(Configs, EveryShippedWorkloadIsValidAndComplete) {
  const std::size_t keys = count_of_keys();
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    const ResolvedConfig config = resolve({entry.path().string(), "", {}}, FieldSet());
    EXPECT_EQ(config.origins.size(), keys) << entry.path() << " leaves a key to its default";
    const bool cpu = entry.path().filename().string().starts_with("tiny");
    EXPECT_EQ(validate(config, {.device = cpu ? DeviceChoice::cpu : DeviceChoice::cuda}).data_parallel, 1)
        << entry.path();
    EXPECT_EQ(plan_device(config.workload, DeviceChoice::automatic),
              cpu ? DeviceChoice::cpu : DeviceChoice::cuda);
    ++files;
  }
  EXPECT_GE(files, 6);
}

TEST(Configs, Gpt2ShapesArePublished) {
  const std::map<std::string, std::vector<std::int64_t>> shapes = {
      // The published GPT-2 shapes as {layers, heads, width}.
      {"gpt2_124m", {12, 12, 768}},      {"gpt2_355m", {24, 16, 1024}},
      {"gpt2_774m", {36, 20, 1280}},     {"gpt2_1558m", {48, 25, 1600}},
      {"seed_355m", {24, 16, 1024}},     {"finetune_124m", {12, 12, 768}},
      {"finetune_355m", {24, 16, 1024}}, {"finetune_774m", {36, 20, 1280}},
      {"finetune_1558m", {48, 25, 1600}}};
  for (const auto& [name, shape] : shapes) {
    const GptConfig model = load_workload("configs/" + name + ".json").model;
    EXPECT_EQ((std::vector{model.layers, model.heads, model.width}), shape) << name;
    EXPECT_EQ(model.context, 1024) << name;
    EXPECT_EQ(model.vocab, 50257) << name;
    EXPECT_EQ(model.vocab_padded(), 50304) << name;
  }
}

// docs/real_models.md trains the fine-tuning files on 1 to 8 GPUs.
TEST(Configs, FineTuningFilesDivideAmongOneToEightGpus) {
  for (const std::string size : {"124m", "355m", "774m", "1558m"}) {
    const ResolvedConfig config = resolve({"configs/finetune_" + size + ".json", "", {}}, FieldSet());
    for (const std::int64_t world : {1, 2, 4, 8}) {
      const RunFacts facts{.mesh = Mesh(WorldSize(world)), .device = DeviceChoice::cuda};
      EXPECT_EQ(validate(config, facts).accumulation, 8 / world) << size;
    }
  }
}

TEST(Configs, TinyRunsOnOneToFourRanks) {
  const ResolvedConfig config = resolve({"configs/tiny.json", "", {}}, FieldSet());
  for (const std::int64_t world : {1, 2, 3, 4, 6, 12})
    EXPECT_EQ(validate(config, {.mesh = Mesh(WorldSize(world))}).accumulation, 12 / world);
}

}  // namespace
}  // namespace sc

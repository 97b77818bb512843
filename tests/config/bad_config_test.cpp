// Tests bad configurations, each with the exact words that answer it.
#include <gtest/gtest.h>

#include "common/config/resolve.h"
#include "common/config/validate.h"
#include "tests/config/support.h"

namespace sc {
namespace {

struct BadConfig {
  std::string workload, strategy;  // contents of w.json and config.json; empty: no such file
  std::vector<std::string> set;    // "key=value"
  std::string message;
  RunFacts facts = {};
};

std::string answer(const BadConfig& bad) {
  const TempFile workload(bad.workload);
  const TempFile strategy(bad.strategy, "config.json");
  ConfigSources sources{
      bad.workload.empty() ? "" : workload.path(), bad.strategy.empty() ? "" : strategy.path(), {}};
  for (const std::string& text : bad.set) {
    const auto equals = text.find('=');
    sources.settings.push_back({text.substr(0, equals), text.substr(equals + 1), "--set " + text});
  }
  Options options;
  const FieldSet fields = options_table().bind(options);
  return strategy.shorten(
      workload.shorten(refusal([&] { (void)validate(resolve(sources, fields), bad.facts); })));
}

void expect_answers(const std::vector<BadConfig>& cases) {
  for (const BadConfig& bad : cases) EXPECT_EQ(answer(bad), bad.message) << bad.workload << bad.strategy;
}

TEST(BadConfig, Keys) {
  const std::string all = "\n  fix: --explain all lists every key; docs/config.md describes them";
  expect_answers({
      {"{\"model\":\n  {\"layer\": 4}}",
       "",
       {},
       "w.json:2:4: there is no key \"model.layer\"; did you mean \"model.layers\"?" + all},
      {"{\"micro\": 2}",
       "",
       {},
       "w.json:1:2: there is no key \"micro\"; did you mean \"batch.micro\"?" + all},
      {"{\"_comment\": \"x\"}", "", {}, "w.json:1:2: there is no key \"_comment\"" + all},
      {"{\"model\": 4}",
       "",
       {},
       "w.json:1:2: \"model\" is a group of keys, not a value\n  fix: --explain model lists them"},
      {"{\"steps\": {\"x\": 4}}",
       "",
       {},
       "w.json:1:12: there is no key \"steps.x\"; did you mean \"steps\"?" + all},
      {"{\"\": 4}", "", {}, "w.json:1:2: there is no key \"\"" + all},
      {"{\"overlap\": \"on\"}",
       "",
       {},
       "w.json:1:2: \"overlap\" is a key of the strategy, not of the workload\n"
       "  fix: move it to the strategy's config.json, or give --set overlap=on"},
      {"",
       "{\"model\": {\"layers\": 4}}",
       {},
       "config.json:1:12: \"model.layers\" is a key of the workload, not of the strategy\n"
       "  fix: move it to a workload file (configs/), or give --set model.layers=4"},
      {"",
       "{\"overlop\": true}",
       {},
       "config.json:1:2: there is no key \"overlop\"; did you mean \"overlap\"?" + all},
      {"",
       "",
       {"bukcet=unit"},
       "--set bukcet=unit: there is no key \"bukcet\"; did you mean \"bucket\"?" + all},
      {"",
       "",
       {"optim=1"},
       "--set optim=1: \"optim\" is a group of keys, not a value\n  fix: --explain optim lists them"},
      {"{\"steps\": 1,\n \"steps\": 1}",
       "",
       {},
       "w.json:2:2: \"steps\" is given twice, first at w.json:1:2\n  fix: remove one of them"},
      {"",
       "",
       {"steps=30", "steps=31"},
       "--set steps=31: steps is also given by \"--set steps=30\", with another value\n  fix: remove one of "
       "them"},
  });
}

TEST(BadConfig, Types) {
  expect_answers({
      {"{\"steps\": \"30\"}",
       "",
       {},
       "w.json:1:11: steps: \"30\" is not an integer\n  fix: steps takes integer: 0 .. 1000000000 (default "
       "400)"},
      {"{\"steps\": 2.5}",
       "",
       {},
       "w.json:1:11: steps: 2.5 is not an integer\n  fix: steps takes integer: 0 .. 1000000000 (default "
       "400)"},
      {"{\"model\": {\"tied\": 1}}",
       "",
       {},
       "w.json:1:20: model.tied: 1 is none of on, off, true, false\n"
       "  fix: model.tied takes switch: on, off, true, false (default on)"},
      {"{\"optim\": {\"lr\": true}}",
       "",
       {},
       "w.json:1:18: optim.lr: true is not a finite number\n  fix: optim.lr takes real: 0 < x <= 10 (default "
       "0.002)"},
      {"{\"data\": {\"source\": 5}}",
       "",
       {},
       "w.json:1:21: data.source: 5 is not text: it needs quotes\n  fix: data.source takes text: any "
       "(default austen)"},
      {"{\"steps\": null}",
       "",
       {},
       "w.json:1:11: steps: null is not a value\n  fix: remove the key: its default holds then"},
      {"{\"steps\": [30]}", "", {}, "w.json:1:11: steps: no key takes a list\n  fix: give one value"},
      {"{\"steps\": 30,}", "", {}, "w.json:1:14: a comma before a closing brace\n  fix: remove the comma"},
  });
}

TEST(BadConfig, Ranges) {
  expect_answers({
      {"{\"model\": {\"layers\": 0}}",
       "",
       {},
       "w.json:1:22: model.layers: 0 is outside its range, 1 .. 1024\n  fix: model.layers takes integer: 1 "
       ".. 1024 (default 4)"},
      {"",
       "",
       {"optim.beta1=1"},
       "--set optim.beta1=1: optim.beta1: 1 is outside its range, 0 <= x < 1\n"
       "  fix: optim.beta1 takes real: 0 <= x < 1 (default 0.9)"},
      {"",
       "",
       {"optim.lr=0"},
       "--set optim.lr=0: optim.lr: 0 is outside its range, 0 < x <= 10\n  fix: optim.lr takes real: 0 < x "
       "<= 10 (default 0.002)"},
      {"",
       "",
       {"activations=recompte"},
       "--set activations=recompte: activations: \"recompte\" is none of keep, recompute_gelu, recompute; "
       "did you mean "
       "\"recompute\"?\n  fix: activations takes choice: keep, recompute_gelu, recompute (default keep)"},
      {"",
       "",
       {"precision.dtype=bf61"},
       "--set precision.dtype=bf61: precision.dtype: \"bf61\" is none of fp32, bf16, fp16; did you mean "
       "\"bf16\"?\n"
       "  fix: precision.dtype takes choice: fp32, bf16, fp16 (default fp32)"},
      {"",
       "",
       {"seed=-1"},
       "--set seed=-1: seed: \"-1\" is not an integer in 0 .. 2^64 - 1\n  fix: seed takes integer: 0 .. 2^64 "
       "- 1 (default 1)"},
      {"",
       "{\"verify_replicas\": -1}",
       {},
       "config.json:1:21: verify_replicas: -1 is outside its range, at least 0\n"
       "  fix: verify_replicas takes integer: at least 0 (default 10)"},
  });
}

TEST(BadConfig, ValuesThatDoNotFitTogether) {
  expect_answers({
      {"{\"model\": {\"heads\": 3}}",
       "",
       {},
       "w.json:1:21: model.width 128 is not a multiple of model.heads 3: a head would have 42.67 elements\n"
       "  fix: --set model.width=126 or --set model.heads=2"},
      {"{\"model\": {\"heads\": 3}}",
       "",
       {"model.width=2"},
       "--set model.width=2: model.width 2 is not a multiple of model.heads 3: a head would have 0.6667 "
       "elements\n"
       "  fix: --set model.width=3 or --set model.heads=2"},
      {"{\"batch\": {\"sequence\": 512}}",
       "",
       {},
       "w.json:1:24: batch.sequence 512 is longer than model.context 128: there are no positions for the "
       "rest\n"
       "  fix: --set batch.sequence=128 or --set model.context=512"},
      {"",
       "",
       {"model.vocab=100"},
       "--set model.vocab=100: model.vocab 100 is too small: data.tokenizer byte produces 257 tokens\n"
       "  fix: --set model.vocab=257"},
      {"",
       "",
       {"data.tokenizer=gpt2"},
       "--set data.tokenizer=gpt2: model.vocab 257 is too small: data.tokenizer gpt2 produces 50257 tokens\n"
       "  fix: --set model.vocab=50257 or --set data.tokenizer=byte"},
      {"{\"precision\": {\"dtype\": \"bf16\"}}",
       "",
       {},
       "w.json:1:25: precision.dtype bf16 needs a GPU: this run is on the CPU, which trains in fp32\n"
       "  fix: --set precision.dtype=fp32, or --device cuda"},
      {"{\"model\": {\"layers\": 3}}",
       "",
       {},
       "w.json:1:22: 4 stages cannot share model.layers 3: a stage has at least one block\n  fix: --set "
       "model.layers=4",
       {.mesh = Mesh(WorldSize(4), {{Axis::stages, 4}})}},
  });
}

TEST(BadConfig, SixteenBitPlansAreAllowed) {
  EXPECT_EQ(answer({"", "", {"precision.dtype=bf16"}, "", {.plan_only = true}}), "");
  EXPECT_EQ(
      answer({"", "", {"precision.dtype=bf16", "precision.reduce_dtype=fp32"}, "", {.plan_only = true}}), "");
  EXPECT_EQ(answer({"", "", {"precision.dtype=bf16"}, "", {.device = DeviceChoice::cuda}}), "");
}

TEST(BadConfig, FilesThatAreNotThere) {
  EXPECT_EQ(refusal([] { (void)load_workload("configs/tny.json"); }),
            "--workload configs/tny.json: configs/tny.json cannot be read\n"
            "  fix: did you mean configs/tiny.json?");
}

}  // namespace
}  // namespace sc

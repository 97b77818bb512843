#include "options.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cxxopts.hpp>

#include "common/base/check.h"
#include "common/base/flag_text.h"
#include "common/base/parse_number.h"
#include "common/base/text.h"
#include "common/config/resolve.h"

namespace sc::choose {
namespace {

constexpr const char* kHelp =
    R"(Which lessons fit on such GPUs, with which batch.micro, and what a step would take. Runs no rank; needs no GPU.

usage: lessons/choose.sh --gpus N [--memory SIZE] [--link RATE] [--host-memory SIZE] [--disk RATE] [--disk-size SIZE]
                         [--gpus-per-node N --node-link RATE] [--gpu NAME] [--workload FILE] [--set KEY=VALUE]... [--json]
       lessons/choose.sh --check [--json]

  --gpus N            one rank each; of one host, unless --gpus-per-node says otherwise
  --gpu NAME          takes peak rates from a table: H200 (default), H100, A100-80GB, A100-40GB, B200, L40S, L4, RTX4090, RTX3090
  --memory 24GB       of one GPU; default: the table's. Rates stay those of --gpu
  --link 25GB/s       what a GPU sends to the others at the same time; default: the table's, times the share measured
  --gpus-per-node 8   GPUs of a node, whose ranks are neighbours; tensor groups lie within one
  --node-link 50GB/s  what a GPU sends to other nodes at the same time, through its own network card
  --host-memory 512GB of all hosts together, which all ranks share; without it nothing is offloaded
  --disk 4GB/s        reads and writes of all disks together, which all ranks share; without it nothing goes to a disk
  --disk-size 2TB     without it the disk is as large as it takes
  --workload FILE     default: configs/gpt2_355m.json
  --set KEY=VALUE     changes one key of the workload; can be repeated. batch.micro and activations are what is looked for
  --json              the same as JSON
  --check             predicts every step in docs/results that was timed on GPUs, and shows the error
  --help              this text

example:
  lessons/choose.sh --gpus 8 --gpu RTX4090 --link 25GB/s --host-memory 512GB --disk 4GB/s

Formulas and their errors: docs/choosing.md
exit codes: 0, 64 command line, 65 lessons/choose/measured.json is damaged, 69 nothing fits
)";

constexpr const char* kFlags[] = {"gpus",          "gpu",       "memory",      "link",
                                  "gpus-per-node", "node-link", "host-memory", "disk",
                                  "disk-size",     "workload",  "set"};

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::usage, where, what, fix);
}

using Given = cxxopts::ParseResult;

std::optional<std::string> text_of(const Given& given, const std::string& flag) {
  if (given.count(flag) == 0) return std::nullopt;
  if (given.count(flag) > 1) refuse("--" + flag, "given twice", "give it once");
  return given[flag].as<std::string>();
}

// Reads a size such as "24GB", or with `per` a rate such as "4GB/s".
std::optional<Bytes> bytes_of(const Given& given, const std::string& flag, const std::string& per,
                              const char* example) {
  const auto text = text_of(given, flag);
  if (!text) return std::nullopt;
  const std::string where = "--" + flag + " " + *text, fix = fmt::format("--{} {}", flag, example);
  const bool unit = text->size() > 1 + per.size() && text->ends_with("B" + per);
  if (!unit)
    refuse(where, per.empty() ? "a size needs its unit" : "a rate needs its unit, bytes a second", fix);
  try {
    return parse_bytes(text->substr(0, text->size() - per.size()));
  } catch (const FieldError& error) {
    refuse(where, error.what(), fix);
  }
}

std::optional<double> rate_of(const Given& given, const std::string& flag) {
  const auto bytes = bytes_of(given, flag, "/s", flag == "disk" ? "4GB/s" : "25GB/s");
  if (!bytes) return std::nullopt;
  return static_cast<double>(bytes->value());
}

std::int64_t number_of(const Given& given, const std::string& flag) {
  const auto text = text_of(given, flag);
  if (!text) refuse("command line", "how many GPUs?", "--gpus 8, or --help");
  const int gpus = parse_number<int>(*text).value_or(0);
  if (gpus < 1 || gpus > 1024)
    refuse("--" + flag + " " + *text, "not a number of GPUs, 1 to 1024", "--" + flag + " 8");
  return gpus;
}

void take_nodes(const Given& given, Machine& machine) {
  machine.node_link = rate_of(given, "node-link");
  if (given.count("gpus-per-node") == 0) {
    if (machine.node_link)
      refuse("--node-link", "it is between nodes, and all GPUs are in one",
             "--gpus-per-node 8, or leave it out");
    return;
  }
  const std::int64_t node = number_of(given, "gpus-per-node");
  std::string fit;
  for (std::int64_t each = std::min<std::int64_t>(machine.gpus, 8); each >= 1 && fit.empty(); --each)
    if (machine.gpus % each == 0) fit = std::to_string(each);
  if (machine.gpus % node != 0)
    refuse(fmt::format("--gpus-per-node {}", node),
           fmt::format("{} GPUs are no whole number of such nodes", machine.gpus), "--gpus-per-node " + fit);
  if (node < machine.gpus && !machine.node_link)
    refuse(fmt::format("--gpus-per-node {}", node), "what does a GPU send to other nodes?",
           "--node-link 50GB/s");
  machine.gpus_per_node = node;
}

Workload workload_of(Options& options, const Given& given) {
  if (const auto file = text_of(given, "workload")) options.workload_file = *file;
  ConfigSources sources;
  sources.workload_file = options.workload_file;
  if (given.count("set") > 0) options.set = given["set"].as<std::vector<std::string>>();
  for (const std::string& setting : options.set) {
    const auto equals = setting.find('=');
    if (equals == std::string::npos) refuse("--set " + setting, "not KEY=VALUE", "--set batch.global=64");
    const std::string key = setting.substr(0, equals);
    if (key == "batch.micro" || key == "activations")
      refuse("--set " + setting, "choose looks for the best itself", "leave it out");
    sources.settings.push_back({key, setting.substr(equals + 1), "--set " + setting});
  }
  return resolve(sources, {}).workload;
}

Given parse(int argc, const char* const* argv) {
  cxxopts::Options options("choose");
  options.allow_unrecognised_options();  // refused below, with the one that is near
  options.add_options()("help", "")("check", "")("json", "");
  std::vector<std::string> names = {"--help", "--check", "--json"};
  for (const std::string flag : kFlags) {
    names.push_back("--" + flag);
    if (flag == "set") options.add_options()(flag, "", cxxopts::value<std::vector<std::string>>());
    if (flag != "set") options.add_options()(flag, "", cxxopts::value<std::string>());
  }
  try {
    Given given = options.parse(argc, argv);
    if (!given.unmatched().empty()) refuse_flag(given.unmatched().front(), names, "--help lists all");
    return given;
  } catch (const cxxopts::exceptions::exception&) {
    refuse("command line", fmt::format("the value of {} is missing", argv[argc - 1]),
           "--help shows one of each");
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  const Given given = parse(argc, argv);
  if (given.count("help") > 0) return std::nullopt;
  Options options;
  options.json = given.count("json") > 0, options.check = given.count("check") > 0;
  options.machine.gpu = gpu_named(text_of(given, "gpu").value_or("H200"));
  if (options.check) return options;
  Machine& machine = options.machine;
  machine.gpus = number_of(given, "gpus");
  take_nodes(given, machine);
  machine.memory = bytes_of(given, "memory", "", "24GB").value_or(machine.gpu.memory);
  machine.host_memory = bytes_of(given, "host-memory", "", "512GB");
  machine.disk_size = bytes_of(given, "disk-size", "", "2TB");
  machine.link = rate_of(given, "link"), machine.disk = rate_of(given, "disk");
  options.other_machine = given.count("gpu") == 0 && (given.count("memory") > 0 || given.count("link") > 0);
  options.workload = workload_of(options, given);
  return options;
}

std::string help_text() { return kHelp; }

}  // namespace sc::choose

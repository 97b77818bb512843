// Runs every target, in the ordinary build, on the inputs that are kept for it: what was found once does not
// come back. run.sh makes new inputs, and uses the sanitizers.
//   fuzz_replay CORPUS     a folder with one folder for each target
//   exit   0; by a signal if a rule breaks, and the input is named; 1 if nothing was taken, or nothing
//   refused
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "tests/fuzz/support.h"

namespace sc::fuzz {
namespace {

const std::map<std::string, Target*> kTargets = {{"safetensors", safetensors},
                                                 {"manifest", manifest},
                                                 {"checkpoint_folder", checkpoint_folder},
                                                 {"workload", workload},
                                                 {"prepare_text", prepare_text},
                                                 {"bpe_merges", bpe_merges},
                                                 {"names", names},
                                                 {"schedule", schedule}};

std::string current;  // input

void name_the_input(int /*signal*/) { std::fprintf(stderr, "input: %s\n", current.c_str()); }

bool replay(const std::string& name, Target& target, const Path& inputs) {
  const Counts before = counts();
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(inputs)) {
    current = entry.path().string();
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string content(std::istreambuf_iterator<char>(file), {});
    target(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
    ++files;
  }
  const auto taken = counts().taken - before.taken, refused = counts().refused - before.refused;
  std::printf("%s: %d inputs, %lld taken, %lld refused\n", name.c_str(), files, static_cast<long long>(taken),
              static_cast<long long>(refused));
  return taken > 0 && refused > 0;
}

int replay_all(const Path& corpus) {
  std::signal(SIGABRT, name_the_input);
  bool all = true;
  for (const auto& entry : std::filesystem::directory_iterator(corpus))
    require(kTargets.contains(entry.path().filename().string()), "a folder of inputs without a target");
  for (const auto& [name, target] : kTargets) all = replay(name, *target, corpus / name) && all;
  return all ? 0 : 1;
}

}  // namespace
}  // namespace sc::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_replay tests/fuzz/corpus\n");
    return 64;
  }
  return sc::fuzz::replay_all(argv[1]);
}

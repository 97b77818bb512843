// Feeds damaged files to the readers of schedules, costs and profiles. A reader may refuse a file with
// InputError and do nothing else; what it accepts must write and read back equal, and the checker and the
// simulator must bear it.
//   usage  pipedream_fuzz [--seconds 20] [--seed 1]      exit 0; 1 with the input printed if a rule is broken
// Built with the address and undefined-behaviour sanitizers.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "pipedream/check.h"
#include "pipedream/cost_files.h"
#include "pipedream/error.h"
#include "pipedream/generate.h"
#include "pipedream/schedule_file.h"
#include "pipedream/simulate.h"

namespace sc::pipedream {
namespace {

enum class Format { csv, json, costs, profile };

struct Sample {
  Format format = Format::csv;
  std::string text;
};

std::vector<Sample> seeds() {
  std::vector<Sample> all;
  for (const Family family : kFamilies) {
    const bool chunked = family == Family::interleaved;
    const Schedule s =
        generate({.family = family, .stages = 2, .microbatches = 2, .batches = 2, .chunks = chunked ? 2 : 1});
    all.push_back({Format::csv, to_csv(s)});
    all.push_back({Format::json, to_json(s)});
  }
  Costs costs;
  costs.times = {{1, 2, 0.5, 0}, {1e-3, 1e9, 0, 4}};
  all.push_back({Format::costs, to_json(costs)});
  Profile profile;
  profile.name = "p";
  profile.layers = {{"a", 1, 2, 3, 4, 5, true}, {"b", 0, 0, 0, 0, 0, false}};
  all.push_back({Format::profile, to_json(profile)});
  return all;
}

// Fragments that readers treat specially.
const std::vector<std::string>& words() {
  static const std::vector<std::string> all = {"-1",
                                               "0",
                                               "1",
                                               "4294967296",
                                               "99999999999999999999",
                                               "1e999",
                                               "-0.5",
                                               "null",
                                               "true",
                                               "\"",
                                               "\\",
                                               "{",
                                               "}",
                                               "[",
                                               "]",
                                               ",",
                                               "\n",
                                               "\r\n",
                                               std::string(1, '\0'),
                                               "F0",
                                               "B9999999",
                                               "step@1",
                                               "/63",
                                               "@1048576",
                                               "stash",
                                               "two_buffers",
                                               "backward_weights",
                                               "1025",
                                               "1048577",
                                               "\xff\xfe",
                                               "\"stages\": 3,"};
  return all;
}

class Fuzzer {
 public:
  explicit Fuzzer(unsigned seed) : random_(seed), seeds_(seeds()) {}

  Sample next() {
    Sample sample = seeds_[pick(seeds_.size())];
    for (std::size_t edits = pick(4); edits-- > 0;) damage(sample.text);
    return sample;
  }

 private:
  std::size_t pick(std::size_t below) { return below == 0 ? 0 : random_() % below; }

  void damage(std::string& text) {
    const std::size_t at = pick(text.size() + 1);
    const std::size_t length = pick(std::min<std::size_t>(12, text.size() - at + 1));
    switch (pick(5)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, words()[pick(words().size())]);
        break;
      case 2:
        text.replace(at, length, words()[pick(words().size())]);
        break;
      case 3:
        text.insert(at, text.substr(pick(text.size() + 1), 40));
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(pick(256));
    }
  }

  std::mt19937 random_;
  std::vector<Sample> seeds_;
};

// Throws std::logic_error if what was accepted does not read back equal.
void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

void use(const Schedule& schedule) {
  require(schedule_from_csv(to_csv(schedule), "csv") == schedule, "CSV does not read back equal");
  require(schedule_from_json(to_json(schedule), "json") == schedule, "JSON does not read back equal");
  if (std::int64_t{schedule.positions()} * schedule.microbatches > 4096)
    return;  // arrays of every microbatch: slow
  const CheckReport report = check(schedule);
  try {
    simulate(schedule, {});
  } catch (const InputError&) {
    require(!report.ok(), "the simulator refuses what the checker accepts");
  }
}

void read(const Sample& sample) {
  switch (sample.format) {
    case Format::csv:
      return use(schedule_from_csv(sample.text, "fuzz"));
    case Format::json:
      return use(schedule_from_json(sample.text, "fuzz"));
    case Format::costs: {
      const Costs costs = costs_from_json(sample.text, "fuzz");
      return require(costs_from_json(to_json(costs), "fuzz") == costs, "costs do not read back equal");
    }
    case Format::profile: {
      const Profile profile = profile_from_json(sample.text, "fuzz");
      return require(profile_from_json(to_json(profile), "fuzz") == profile,
                     "a profile does not read back equal");
    }
  }
}

int fuzz(double seconds, unsigned seed) {
  Fuzzer fuzzer(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::int64_t accepted = 0;
  std::int64_t refused = 0;
  while (std::chrono::steady_clock::now() < end) {
    const Sample sample = fuzzer.next();
    try {
      read(sample);
      ++accepted;
    } catch (const InputError&) {
      ++refused;
    } catch (const std::exception& error) {
      std::cerr << "error: " << error.what() << " for this input (seed " << seed << "):\n"
                << sample.text << '\n';
      return 1;
    }
  }
  std::cout << accepted + refused << " files: " << accepted << " accepted, " << refused << " refused (seed "
            << seed << ")\n";
  return accepted > 0 && refused > 0 ? 0 : 1;  // a fuzzer that reaches one side only tests nothing
}

}  // namespace
}  // namespace sc::pipedream

int main(int argc, char** argv) {
  double seconds = 20;
  unsigned seed = 1;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc || (flag != "--seconds" && flag != "--seed")) {
      std::cerr << "error: " << flag
                << ": unknown, or without its number\n  fix: pipedream_fuzz --seconds 20 --seed 1\n";
      return 64;
    }
    if (flag == "--seconds") seconds = std::atof(argv[i + 1]);
    if (flag == "--seed") seed = static_cast<unsigned>(std::atoi(argv[i + 1]));
  }
  return sc::pipedream::fuzz(seconds, seed);
}

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "common/input/json_text.h"
#include "pipedream/error.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

namespace {

constexpr std::string_view kHead = "schedule,stages,microbatches,chunks,versions";
constexpr std::string_view kActionHead = "stage,kind,microbatch,chunk,version";
constexpr std::size_t kFields = 5;

class CsvReader {
 public:
  CsvReader(const std::string& text, const std::string& where) : rest_(text), where_(where) {}

  Schedule read() {
    expect(kHead);
    Schedule schedule = head();
    schedule.actions.resize(static_cast<std::size_t>(schedule.stages));
    expect(kActionHead);
    while (next_line()) {
      const Action action = this->action();
      if (action.stage < 0 || action.stage >= schedule.stages) {
        refuse("there is no stage " + std::to_string(action.stage), "choose 0 to stages - 1");
      }
      schedule.actions[static_cast<std::size_t>(action.stage)].push_back(action);
    }
    return schedule;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& fix) const {
    throw InputError(ExitCode::data, where_ + ":" + std::to_string(line_number_), what, fix);
  }

  bool next_line() {
    if (rest_.empty()) return false;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, end);
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_number_;
    return true;
  }

  void expect(std::string_view line) {
    const bool there = next_line();
    if (!there || line_ != line) refuse("the line '" + std::string(line) + "' is missing", "write it here");
  }

  void split() {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < kFields; ++i) {
      const std::size_t end = std::min(line_.find(',', begin), line_.size());
      const bool last = i + 1 == kFields;
      if (begin > line_.size() || last != (end == line_.size())) {
        refuse("there are not " + std::to_string(kFields) + " fields", "separate them by commas");
      }
      fields_[i] = line_.substr(begin, end - begin);
      begin = end + 1;
    }
  }

  [[nodiscard]] int number(std::size_t field) const {
    const std::string_view text = fields_[field];
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      refuse("'" + std::string(text.substr(0, 40)) + "' is no number", "write a whole number");
    }
    return value;
  }

  Schedule head() {
    if (!next_line()) refuse("the schedule's line is missing", "write for example 1f1b,4,4,1,flush");
    split();
    Schedule schedule;
    schedule.name = fields_[0];
    schedule.stages = number(1);
    schedule.microbatches = number(2);
    schedule.chunks = number(3);
    if (!rule_from_name(fields_[4], schedule.versions)) {
      refuse("'" + std::string(fields_[4].substr(0, 40)) + "' is no version rule",
             "choose flush, none, stash, vertical_sync or two_buffers");
    }
    if (schedule.stages < 1 || schedule.stages > kMostStages) {
      refuse("stages: " + std::to_string(schedule.stages) + " is out of range",
             "choose 1 to " + std::to_string(kMostStages));
    }
    return schedule;
  }

  Action action() {
    split();
    Action action;
    action.stage = number(0);
    if (!kind_from_name(fields_[1], action.kind)) {
      refuse("'" + std::string(fields_[1].substr(0, 40)) + "' is no kind of action",
             "choose for example forward, backward, send_activation or step");
    }
    action.microbatch = number(2);
    action.chunk = number(3);
    action.version = number(4);
    return action;
  }

  std::string_view rest_, line_;
  const std::string& where_;
  std::string_view fields_[kFields];
  int line_number_ = 0;
};

}  // namespace

std::string to_csv(const Schedule& schedule) {
  std::string text;
  const auto number = [&](int value) { (text += ',') += std::to_string(value); };
  (text += kHead) += '\n';
  text += schedule.name;
  number(schedule.stages);
  number(schedule.microbatches);
  number(schedule.chunks);
  ((text += ',') += name_of(schedule.versions)) += '\n';
  (text += kActionHead) += '\n';
  for (const std::vector<Action>& list : schedule.actions) {
    for (const Action& action : list) {
      ((text += std::to_string(action.stage)) += ',') += name_of(action.kind);
      number(action.microbatch);
      number(action.chunk);
      number(action.version);
      text += '\n';
    }
  }
  return text;
}

Schedule schedule_from_csv(const std::string& text, const std::string& where) {
  Schedule schedule = CsvReader(text, where).read();
  require_readable(schedule, where);
  return schedule;
}

void require_readable(const Schedule& schedule, const std::string& where) {
  const std::string& name = schedule.name;
  const auto allowed = [](unsigned char c) {
    return c < 128 && (std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-');
  };
  if (name.empty() || name.size() > 64 || !std::all_of(name.begin(), name.end(), allowed)) {
    throw InputError(ExitCode::data, where,
                     "the schedule's name is not 1 to 64 letters, digits, '_', '.' or '-'", "rename it");
  }
  try {
    require_shape(schedule);
  } catch (const InputError& error) {
    throw InputError(ExitCode::data, where, error.what(), error.fix());
  }
}

std::string read_text(const std::string& path) {
  std::error_code absent;
  std::ifstream file;  // not opened unless regular: opening a pipe would wait for its writer
  if (std::filesystem::is_regular_file(path, absent)) file.open(path, std::ios::binary);
  if (!file.is_open()) {
    throw InputError(ExitCode::usage, path, "cannot be read", "check the name");
  }
  std::string text(kMostTextBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostTextBytes) {
    throw InputError(ExitCode::data, path, too_large(kMostTextBytes), "a schedule of fewer micro-batches");
  }
  text.shrink_to_fit();
  return text;
}

void write_text(const std::string& path, const std::string& text) {
  std::error_code absent;
  const auto there = std::filesystem::symlink_status(path, absent);
  if (std::filesystem::is_symlink(there))
    throw InputError(ExitCode::usage, path, "is a symbolic link, and would be replaced",
                     "give the path of the file that it leads to, or remove the link");
  const bool replaceable = !std::filesystem::exists(there) || std::filesystem::is_regular_file(there);
  const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  // With x, fopen() never replaces an existing file.
  std::FILE* file = replaceable ? std::fopen(temporary.c_str(), "wbx") : nullptr;
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  if (file != nullptr) std::remove(temporary.c_str());
  throw InputError(ExitCode::cannot_write, path,
                   replaceable ? "cannot be written" : "is not a file that could be replaced",
                   "check the folder and the space left");
}

}  // namespace sc::pipedream

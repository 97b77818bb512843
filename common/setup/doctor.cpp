// Prints which libraries this build was made with and which files are loaded now. doctor.sh calls it.
#include <ATen/Parallel.h>
#include <mpi.h>
#include <torch/headeronly/version.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "common/base/check.h"
#include "common/setup/doctor_lines.h"
#include "common/storage/atomic_dir.h"
#include "common/storage/block_io.h"

namespace sc {
namespace {

DoctorLine mpi_line() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<std::size_t>(length));
  return {"MPI library", version.substr(0, version.find(','))};
}

// The library files that this process has mapped, by the library's name up to ".so". Two files of one name
// are two copies of its state: calls then end in either of them.
std::vector<DoctorLine> loaded_lines() {
  std::map<std::string, std::set<std::string>> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string path = line.substr(slash);
    const std::string file = path.substr(path.rfind('/') + 1);
    const std::size_t so = file.find(".so");
    if (so != std::string::npos) files[file.substr(0, so)].insert(path);
  }
  std::vector<DoctorLine> lines;
  for (const char* name :
       {"libtorch_cpu", "libtorch_cuda", "libmpi", "libgomp", "libcudart", "libnccl", "libcudnn"}) {
    const bool twice = files[name].size() > 1;
    for (const std::string& path : files[name]) {
      lines.push_back(
          {name, path, twice ? "two copies are loaded: leave one off LD_LIBRARY_PATH and LD_PRELOAD" : ""});
    }
  }
  return lines;
}

// How lesson 06 would stream its states to disk. Without io_uring threads do it, which needs no mending.
DoctorLine disk_line() {
  try {
    const auto ops = posix_file_ops();
    const auto file = create_unnamed(*ops, std::filesystem::temp_directory_path() / "doctor");
    const OpenedIo opened = open_block_io(IoEngine::io_uring, *file, 1);
    return {"disk engine", opened.refusal.empty() ? "io_uring, threads" : opened.refusal};
  } catch (const InputError& error) {
    return {"disk engine", error.where() + ": " + error.message()};
  }
}

int report() {
  std::vector<DoctorLine> lines = {{"LibTorch headers", TORCH_VERSION}, mpi_line()};
  lines.push_back({"intra-op threads", std::to_string(at::get_num_threads())});
  lines.push_back(disk_line());
  for (const auto& more : {gpu_lines(), loaded_lines()}) lines.insert(lines.end(), more.begin(), more.end());
  ExitCode code = ExitCode::ok;
  for (const DoctorLine& line : lines) {
    std::printf("  %-18s %s\n", line.name.c_str(), line.value.c_str());
    if (line.fix.empty()) continue;
    std::printf("  %-18s fix: %s\n", "", line.fix.c_str());
    code = ExitCode::missing;
  }
  return static_cast<int>(code);
}

}  // namespace
}  // namespace sc

int main() { return sc::report(); }

#include "common/watch/launch.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <regex>

#include "common/base/check.h"
#include "common/base/parse_number.h"

namespace sc {
namespace {

constexpr const char* kWhere = "launcher";

struct Variable {
  std::string name;
  int value = 0;
  [[nodiscard]] std::string text() const { return name + "=" + std::to_string(value); }
};

[[noreturn]] void contradiction(const std::string& what) {
  throw InputError(ExitCode::usage, kWhere, what,
                   "start this program with mpirun or srun --mpi=pmix, or unset these variables");
}

std::optional<Variable> number(const Environment& environment, const std::string& name) {
  const std::optional<std::string> text = environment(name);
  if (!text) return std::nullopt;
  const int value = parse_number<int>(*text).value_or(-1);
  if (value < 0) contradiction(name + "=" + *text + " is not a number");
  return Variable{name, value};
}

std::optional<Variable> first_number(const Environment& environment, const std::string& name,
                                     const std::string& otherwise) {
  const std::optional<Variable> found = number(environment, name);
  return found ? found : number(environment, otherwise);
}

void require_inside(const Variable& rank, const Variable& size) {
  if (rank.value >= size.value) contradiction(rank.text() + " is not below " + size.text());
}

void require_equal(const std::optional<Variable>& a, const std::optional<Variable>& b) {
  if (a && b && a->value != b->value) contradiction(a->text() + " but " + b->text());
}

// Refuses a launcher that sets the rank without the number of ranks, or the reverse.
void require_pair(const std::optional<Variable>& rank, const std::optional<Variable>& size,
                  const std::string& rank_name, const std::string& size_name) {
  if (rank && !size) contradiction(rank->text() + " but " + size_name + " is not set");
  if (size && !rank) contradiction(size->text() + " but " + rank_name + " is not set");
}

// Whether srun --mpi=pmix started this process. Slurm's own PMIx names its processes
// "slurm.pmix.<job>.<step>"; mpirun inside a job sets another name.
bool started_by_srun_pmix(const Environment& environment) {
  return environment("PMIX_RANK") && environment("PMIX_NAMESPACE").value_or("").rfind("slurm.", 0) == 0;
}

// How many tasks of the step run on this node: "2(x3),1" is 1 for node 3.
std::optional<Variable> tasks_on_node(const Environment& environment) {
  const std::string name = "SLURM_STEP_TASKS_PER_NODE";
  const std::optional<std::string> text = environment(name);
  const std::optional<Variable> node = number(environment, "SLURM_NODEID");
  if (!text || !node) return std::nullopt;
  static const std::regex run(R"((\d{1,9})(?:\(x(\d{1,9})\))?(?:,|$))");
  int before = 0;
  for (std::sregex_iterator at(text->begin(), text->end(), run, std::regex_constants::match_continuous), end;
       at != end; ++at) {
    before += (*at)[2].matched ? std::stoi((*at)[2].str()) : 1;
    if (node->value < before) return Variable{name, std::stoi((*at)[1].str())};
  }
  contradiction(name + "=" + *text + " says nothing about " + node->text());
}

Launch make_launch(std::string launcher, const Variable& rank, const Variable& size,
                   const std::optional<Variable>& local_rank, const std::optional<Variable>& local_size) {
  require_inside(rank, size);
  if (local_rank && local_size) require_inside(*local_rank, *local_size);
  if (local_size && local_size->value > size.value)
    contradiction(local_size->text() + " is more than " + size.text());
  return {std::move(launcher), Rank{rank.value}, WorldSize{size.value}, Rank{local_rank.value_or(rank).value},
          WorldSize{local_size.value_or(size).value}};
}

Launch from_open_mpi(const Environment& environment, const Variable& rank, const Variable& size) {
  require_equal(rank, number(environment, "PMIX_RANK"));
  require_equal(size, number(environment, "PMIX_SIZE"));
  if (started_by_srun_pmix(environment)) {
    require_equal(size, first_number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"));
    require_equal(rank, number(environment, "SLURM_PROCID"));
  }
  const auto local_rank = number(environment, "OMPI_COMM_WORLD_LOCAL_RANK");
  const auto local_size = number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  require_pair(local_rank, local_size, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  return make_launch("Open MPI", rank, size, local_rank, local_size);
}

Launch from_pmix(const Environment& environment, const Variable& rank) {
  if (!started_by_srun_pmix(environment)) {
    const auto size = number(environment, "PMIX_SIZE");
    require_pair(rank, size, "PMIX_RANK", "PMIX_SIZE");
    return make_launch("PMIx", rank, *size, number(environment, "PMIX_LOCAL_RANK"),
                       number(environment, "PMIX_LOCAL_SIZE"));
  }
  const auto size = first_number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  require_pair(rank, size, "PMIX_RANK", "SLURM_NTASKS");
  require_equal(rank, number(environment, "SLURM_PROCID"));
  return make_launch("Slurm", rank, *size, number(environment, "SLURM_LOCALID"), tasks_on_node(environment));
}

void refuse_plain_srun(const Environment& environment) {
  const auto rank = number(environment, "SLURM_PROCID");
  const auto size = first_number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  if (!rank || !size || size->value <= 1) return;
  throw InputError(ExitCode::missing, kWhere,
                   "Slurm started " + std::to_string(size->value) + " tasks (" + rank->text() + ", " +
                       size->text() + ") without PMIx: each would be a world of one rank",
                   "srun --mpi=pmix ...");
}

void refuse_old_pmi(const Environment& environment) {
  const auto size = number(environment, "PMI_SIZE");
  if (!size || size->value <= 1) return;
  throw InputError(
      ExitCode::missing, kWhere,
      "a launcher that speaks PMI-1 or PMI-2 only started " + size->text() + " ranks; Open MPI needs PMIx",
      "use Open MPI's mpirun, or srun --mpi=pmix");
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Launch detect_launch(const Environment& environment) {
  const auto rank = number(environment, "OMPI_COMM_WORLD_RANK"),
             size = number(environment, "OMPI_COMM_WORLD_SIZE");
  require_pair(rank, size, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (rank) return from_open_mpi(environment, *rank, *size);
  if (const auto pmix = number(environment, "PMIX_RANK")) return from_pmix(environment, *pmix);
  refuse_plain_srun(environment);
  refuse_old_pmi(environment);
  return {};
}

void check_launch(const Launch& launch, Rank mpi_rank, WorldSize mpi_world) {
  if (launch.rank == mpi_rank && launch.world == mpi_world) return;
  throw InputError(ExitCode::missing, kWhere,
                   launch.launcher + " started rank " + std::to_string(to_int(launch.rank)) + " of " +
                       std::to_string(to_int(launch.world)) + ", but MPI is rank " +
                       std::to_string(to_int(mpi_rank)) + " of " + std::to_string(to_int(mpi_world)),
                   "start it with the mpirun of the MPI that it was built with");
}

int signal_asked(int signal, const Environment& environment) {
  std::ifstream file(environment("STAGECRAFT_SIGNAL_FILE").value_or(""));
  int asked = 0;
  return file >> asked ? asked : signal;
}

void leave_sign(const std::string& sign, const Environment& environment) noexcept {
  const std::string signs = environment("STAGECRAFT_SIGNS").value_or("");
  const std::size_t blank = signs.find(' ');
  if (blank == 0 || blank == std::string::npos) return;
  const std::string token = signs.substr(0, blank) + "\n", line = sign + "\n";
  const int file = ::open(signs.c_str() + blank + 1, O_RDWR | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0) return;
  std::string begin(token.size(), '\0');
  if (::pread(file, begin.data(), begin.size(), 0) == static_cast<ssize_t>(begin.size()) && begin == token)
      [[maybe_unused]]
    const ssize_t written = ::write(file, line.data(), line.size());
  ::close(file);
}

}  // namespace sc

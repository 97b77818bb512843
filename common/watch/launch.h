// How this process was launched, and as which of how many ranks, read from the environment before MPI starts.
// No torch, no MPI.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/base/types.h"

namespace sc {

/// A function that looks up an environment variable; nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

struct Launch {
  std::string launcher = "none";  // none, Open MPI, Slurm or PMIx
  Rank rank{0};
  WorldSize world{1};
  Rank local_rank{0};        // this rank's number on its host
  WorldSize local_world{1};  // ranks on this host
  /// Whether there is a launcher, so that ranks talk over MPI, even a single one.
  [[nodiscard]] bool launched() const { return launcher != "none"; }
};

/// Reads the launcher's variables.
///   none      no launcher: a world of one. So it is inside an allocation (salloc, sbatch) without srun or
///             mpirun, where SLURM_PROCID is not set, or SLURM_NTASKS is 1.
///   Open MPI  OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE (mpirun).
///   Slurm     PMIX_RANK with SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID,
///             SLURM_STEP_TASKS_PER_NODE (srun --mpi=pmix).
///   PMIx      PMIX_RANK and PMIX_SIZE (another launcher that speaks PMIx).
///   Errors    InputError 69: srun without --mpi=pmix for more than one task (each would be a world of its
///             own), or a launcher that only speaks PMI-1 or PMI-2. InputError 64: variables that contradict
///             each other or are no numbers, with names and values.
Launch detect_launch(const Environment& environment);

/// Compares MPI's world with the launcher's, after MPI has started.
///   Errors  InputError 69 if they differ, usually because of an mpirun of another MPI.
void check_launch(const Launch& launch, Rank mpi_rank, WorldSize mpi_world);

/// The signal that the user sent when `signal` reached this rank. mpirun ends its ranks with SIGTERM,
/// whatever signal it got; run.sh writes the number of its own signal to the file named by
/// STAGECRAFT_SIGNAL_FILE. Without that file, as under plain mpirun or on another host, it is `signal`.
int signal_asked(int signal, const Environment& environment);

/// Tells run.sh how far this run has come: "started" in main(), "joined" when all ranks have met, "spoke"
/// after an error. STAGECRAFT_SIGNS is "TOKEN FILE"; the sign becomes a line of FILE if FILE begins with
/// TOKEN, since on another host the same path may be an unrelated file. Does nothing without run.sh.
void leave_sign(const std::string& sign, const Environment& environment) noexcept;

}  // namespace sc

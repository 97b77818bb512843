// Who started this process, and as which of how many ranks: read from the environment, before MPI. No torch,
// no MPI.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/base/types.h"

namespace sc {

/// Value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

struct Launch {
  std::string launcher = "none";  // none, Open MPI, Slurm, PMIx
  Rank rank{0};
  WorldSize world{1};
  Rank local_rank{0};        // on this host
  WorldSize local_world{1};  // ranks on this host
  /// A launcher is there, so ranks talk over MPI, even if there is only one.
  [[nodiscard]] bool launched() const { return launcher != "none"; }
};

/// What the launcher's variables say.
///   none      nobody launched: a world of one.
///   Open MPI  OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE (mpirun).
///   Slurm     PMIX_RANK with SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID,
///             SLURM_STEP_TASKS_PER_NODE (srun --mpi=pmix).
///   PMIx      PMIX_RANK and PMIX_SIZE (another launcher that speaks PMIx).
///   Errors    InputError 69: srun without --mpi=pmix for more than one task (each would be a world of its
///             own), or a launcher that only speaks PMI-1 or PMI-2. InputError 64: variables that contradict
///             each other or are no numbers, with names and values.
/// Inside an allocation (salloc, sbatch) but without srun or mpirun nobody has launched: SLURM_PROCID is not
/// set, or SLURM_NTASKS is 1.
Launch detect_launch(const Environment& environment);

/// After MPI has started: its world must be the launcher's.  Errors: InputError 69 (an mpirun of another MPI,
/// usually).
void check_launch(const Launch& launch, Rank mpi_rank, WorldSize mpi_world);

/// What a person sent where `signal` reached this rank. mpirun ends its ranks with SIGTERM, whatever it was
/// sent itself; run.sh has left the number of its own signal in the file that STAGECRAFT_SIGNAL_FILE names.
/// `signal`, if there is none: mpirun without run.sh, or a rank of another host.
int signal_asked(int signal, const Environment& environment);

/// Tells run.sh how far this run has come: "started" in main(), "joined" when all ranks have met, "spoke"
/// after an error. STAGECRAFT_SIGNS is "TOKEN FILE"; the sign becomes a line of FILE if that begins with the
/// token: on another host the same path may be somebody else's file. Nothing happens without run.sh.
void leave_sign(const std::string& sign, const Environment& environment) noexcept;

}  // namespace sc

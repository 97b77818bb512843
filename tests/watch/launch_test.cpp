// Tests which launcher is detected from its variables, and the refusal of impossible ones.
#include "common/watch/launch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/watch/refusal.h"

namespace sc {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_RANK", "3"},
                           {"PMIX_NAMESPACE", "1234567169"}};
const Variables kSrun = {{"SLURM_PROCID", "5"},         {"SLURM_NTASKS", "7"},
                         {"SLURM_STEP_NUM_TASKS", "7"}, {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "2"},         {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};
const Variables kSrunPmix = with(kSrun, {{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "slurm.pmix.77.0"}});

// A launch as a text: "Open MPI, 3 of 4, here 1 of 2".
std::string text_of(const Launch& launch) {
  const auto part = [](Rank rank, WorldSize world) {
    return std::to_string(to_int(rank)) + " of " + std::to_string(to_int(world));
  };
  return launch.launcher + ", " + part(launch.rank, launch.world) + ", here " +
         part(launch.local_rank, launch.local_world);
}

void expect_launch(const Variables& variables, const Launch& expected) {
  const Launch launch = detect_launch(environment(variables));
  EXPECT_EQ(text_of(launch), text_of(expected));
  EXPECT_EQ(launch.launched(), expected.launcher != "none");
}

void expect_error(const Variables& variables, ExitCode code, const std::string& message) {
  const InputError error = test::refusal_of([&] { (void)detect_launch(environment(variables)); });
  EXPECT_EQ(error.code(), code);
  EXPECT_EQ(error.where(), "launcher");
  EXPECT_EQ(error.message(), message);
}

TEST(Launch, NobodyLaunched) {
  const Variables alone[] = {{},
                             {{"SLURM_NTASKS", "8"}},                         // a shell of salloc
                             {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}},  // a batch script of one task
                             {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}};
  for (const Variables& variables : alone) expect_launch(variables, {});
}

TEST(Launch, OpenMpi) {
  expect_launch(kMpirun, {"Open MPI", Rank{3}, WorldSize{4}, Rank{1}, WorldSize{2}});
  expect_launch({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
                {"Open MPI", Rank{0}, WorldSize{1}, Rank{0}, WorldSize{1}});
  // Under mpirun inside a Slurm job, mpirun's variables count; Slurm's describe the whole job.
  expect_launch(with(kMpirun, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
                {"Open MPI", Rank{3}, WorldSize{4}, Rank{1}, WorldSize{2}});
}

TEST(Launch, Slurm) {
  expect_launch(kSrunPmix, {"Slurm", Rank{5}, WorldSize{7}, Rank{1}, WorldSize{2}});
  expect_launch(
      with(kSrunPmix,
           {{"SLURM_PROCID", "6"}, {"PMIX_RANK", "6"}, {"SLURM_NODEID", "3"}, {"SLURM_LOCALID", "0"}}),
      {"Slurm", Rank{6}, WorldSize{7}, Rank{0}, WorldSize{1}});
  expect_launch(without(kSrunPmix, "SLURM_STEP_NUM_TASKS"),
                {"Slurm", Rank{5}, WorldSize{7}, Rank{1}, WorldSize{2}});
}

TEST(Launch, OtherPmix) {
  expect_launch({{"PMIX_RANK", "1"}, {"PMIX_SIZE", "2"}},
                {"PMIx", Rank{1}, WorldSize{2}, Rank{1}, WorldSize{2}});
}

TEST(Launch, PlainSrunIsRefused) {
  expect_error(kSrun, ExitCode::missing,
               "Slurm started 7 tasks (SLURM_PROCID=5, SLURM_STEP_NUM_TASKS=7) without PMIx: each would be a "
               "world of one rank");
  EXPECT_EQ(test::refusal_of([] { (void)detect_launch(environment(kSrun)); }).fix(), "srun --mpi=pmix ...");
  expect_error({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}, ExitCode::missing,
               "a launcher that speaks PMI-1 or PMI-2 only started PMI_SIZE=4 ranks; Open MPI needs PMIx");
}

TEST(Launch, Contradictions) {
  const std::pair<Variables, std::string> contradictions[] = {
      {with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "4"}, {"PMIX_RANK", "4"}}),
       "OMPI_COMM_WORLD_RANK=4 is not below OMPI_COMM_WORLD_SIZE=4"},
      {without(kMpirun, "OMPI_COMM_WORLD_SIZE"),
       "OMPI_COMM_WORLD_RANK=3 but OMPI_COMM_WORLD_SIZE is not set"},
      {without(kMpirun, "OMPI_COMM_WORLD_RANK"),
       "OMPI_COMM_WORLD_SIZE=4 but OMPI_COMM_WORLD_RANK is not set"},
      {without(kMpirun, "OMPI_COMM_WORLD_LOCAL_SIZE"),
       "OMPI_COMM_WORLD_LOCAL_RANK=1 but OMPI_COMM_WORLD_LOCAL_SIZE is not set"},
      {with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "four"}}), "OMPI_COMM_WORLD_SIZE=four is not a number"},
      {with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "-1"}}), "OMPI_COMM_WORLD_RANK=-1 is not a number"},
      {with(kMpirun, {{"OMPI_COMM_WORLD_RANK", ""}}), "OMPI_COMM_WORLD_RANK= is not a number"},
      {with(kMpirun, {{"PMIX_RANK", "2"}}), "OMPI_COMM_WORLD_RANK=3 but PMIX_RANK=2"},
      {with(kMpirun, {{"PMIX_SIZE", "2"}}), "OMPI_COMM_WORLD_SIZE=4 but PMIX_SIZE=2"},
      {with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}),
       "OMPI_COMM_WORLD_LOCAL_RANK=2 is not below OMPI_COMM_WORLD_LOCAL_SIZE=2"},
      {with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}}),
       "OMPI_COMM_WORLD_LOCAL_SIZE=5 is more than OMPI_COMM_WORLD_SIZE=4"},
      {with(kSrunPmix, {{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}}),
       "OMPI_COMM_WORLD_SIZE=8 but SLURM_STEP_NUM_TASKS=7"},
      {with(kSrunPmix, {{"PMIX_RANK", "4"}}), "PMIX_RANK=4 but SLURM_PROCID=5"},
      {with(kSrunPmix, {{"SLURM_NODEID", "9"}}),
       "SLURM_STEP_TASKS_PER_NODE=2(x3),1 says nothing about SLURM_NODEID=9"},
      {{{"PMIX_RANK", "1"}}, "PMIX_RANK=1 but PMIX_SIZE is not set"},
      {{{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "2"}}, "SLURM_PROCID=x is not a number"}};
  for (const auto& [variables, message] : contradictions) expect_error(variables, ExitCode::usage, message);
}

TEST(Launch, MpiMustAgree) {
  const Launch launch{"Open MPI", Rank{1}, WorldSize{4}, Rank{1}, WorldSize{4}};
  check_launch(launch, Rank{1}, WorldSize{4});
  const InputError error = test::refusal_of([&] { check_launch(launch, Rank{0}, WorldSize{1}); });
  EXPECT_EQ(error.code(), ExitCode::missing);
  EXPECT_EQ(error.message(), "Open MPI started rank 1 of 4, but MPI is rank 0 of 1");
}

TEST(Launch, ReadsTheProcessEnvironment) {
  EXPECT_TRUE(process_environment()("PATH").has_value());
  EXPECT_FALSE(process_environment()("NO_SUCH_VARIABLE_OF_STAGECRAFT").has_value());
}

TEST(Launch, TheSignalThatRunShWasSentCountsNotMpirunsOwn) {
  const std::string path = ::testing::TempDir() + "launch_signal_" + std::to_string(::getpid());
  const Environment under_run_sh = environment({{"STAGECRAFT_SIGNAL_FILE", path}});
  EXPECT_EQ(signal_asked(SIGTERM, under_run_sh), SIGTERM) << "no such file: nothing was sent to run.sh";
  std::ofstream(path) << SIGINT << "\n";
  EXPECT_EQ(signal_asked(SIGTERM, under_run_sh), SIGINT);
  std::ofstream{path};  // empty: the disk was full
  EXPECT_EQ(signal_asked(SIGTERM, under_run_sh), SIGTERM);
  std::filesystem::remove(path);
  EXPECT_EQ(signal_asked(SIGHUP, environment({})), SIGHUP);
}

TEST(Launch, SignsGoIntoTheFileOfRunShAlone) {
  const std::string path = ::testing::TempDir() + "launch_signs_" + std::to_string(::getpid());
  const auto content = [&] {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const Environment under_run_sh = environment({{"STAGECRAFT_SIGNS", "12-34 " + path}});
  leave_sign("started", under_run_sh);
  EXPECT_FALSE(std::filesystem::exists(path)) << "it makes none";
  std::ofstream(path) << "12-345\n";
  leave_sign("started", under_run_sh);
  EXPECT_EQ(content(), "12-345\n") << "another host's file of that name";
  std::ofstream(path) << "12-34\n";
  leave_sign("started", under_run_sh);
  leave_sign("joined", under_run_sh);
  EXPECT_EQ(content(), "12-34\nstarted\njoined\n");
  std::filesystem::remove(path);
  for (const char* odd : {"", " ", "token", " /dev/null", "token "}) {
    leave_sign("started", environment({{"STAGECRAFT_SIGNS", odd}}));
  }
  leave_sign("started", environment({}));
}

}  // namespace
}  // namespace sc

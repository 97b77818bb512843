#!/usr/bin/env python3
"""docs/cluster.md under a real Slurm: its batch script runs, and what starts several worlds is refused. A
private cluster of one node on 127.0.0.1, whose daemons stand in the foreground and are ended by their process
ids. Skipped (77) where Slurm is not installed."""

import contextlib
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys

import support

DAEMONS = ("munged", "slurmctld", "slurmd")
PAGE = os.path.join(support.ROOT, "docs/cluster.md")


def path_with_sbin():
    return os.environ["PATH"] + ":/usr/sbin:/sbin"


def why_not():
    """The reason to skip, or None."""
    missing = [
        name
        for name in (*DAEMONS, "sbatch", "srun", "scontrol")
        if not shutil.which(name, path=path_with_sbin())
    ]
    if missing:
        return f"not installed: {' '.join(missing)} (Debian: apt-get install slurm-wlm munge)"
    if os.geteuid() != 0:
        return "a slurmd needs root"
    return None


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def write(path, content, mode=0o600):
    pathlib.Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())
    os.chmod(path, mode)
    return path


class Cluster:
    """munged, slurmctld and slurmd, and what a user of that cluster starts."""

    def __init__(self, folder):
        self.folder, self.running = folder, []
        os.makedirs(f"{folder}/state")
        os.chmod(support.scratch, 0o755)  # munged wants every user to reach its socket
        os.chmod(folder, 0o755)
        user, host = pwd.getpwuid(os.geteuid()).pw_name, socket.gethostname().split(".")[0]
        control, node = free_ports(2)
        self.socket = f"{folder}/munge.socket"
        self.config = write(
            f"{folder}/slurm.conf",
            f"""ClusterName=page
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={self.socket}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
TmpFS={folder}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=page Nodes={host} Default=YES State=UP
""",
            0o644,
        )
        write(f"{folder}/cgroup.conf", "CgroupPlugin=cgroup/v1\n", 0o644)
        write(f"{folder}/key", os.urandom(128), 0o400)
        self.env = support.environment(SLURM_CONF=self.config, STAGECRAFT_PRESET="cpu", PATH=path_with_sbin())

    def begin_all(self):
        folder = self.folder
        self.begin(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={folder}/key",
            f"--socket={self.socket}",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munged.seed",
        )
        if not support.comes_true(lambda: os.path.exists(self.socket)):
            raise RuntimeError("munged: " + self.said("munged"))
        self.begin("slurmctld", "-D", "-i")
        self.begin("slurmd", "-D")
        if not support.comes_true(lambda: "idle" in self.user("sinfo", "--noheader", "--format=%T").out, 20):
            raise RuntimeError(
                "no idle node\n" + "".join(f"--- {name}\n{self.said(name)[-1500:]}" for name in DAEMONS)
            )

    def begin(self, name, *arguments):
        with open(f"{self.folder}/{name}.said", "w", encoding="utf-8") as said:
            process = subprocess.Popen(
                [name, *arguments],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                start_new_session=True,
            )
        self.running.append(process)

    def said(self, name):
        return read(f"{self.folder}/{name}.said")

    def user(self, *command):
        """What a user starts in the repository."""
        return support.finished(command, env=self.env, cwd=support.repository())

    def state(self, job):
        """(state, exit code) of a job."""
        shown = self.user("scontrol", "show", "job", job).out
        found = re.search(r"JobState=(\w+)", shown), re.search(r"ExitCode=(\d+):", shown)
        return tuple(one[1] if one else "" for one in found)

    def ends(self, job):
        """Waits for the end of a job; its (state, exit code)."""
        support.comes_true(
            lambda: self.state(job)[0] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"), 60
        )
        return self.state(job)

    def end(self):
        """All jobs, whose processes slurmd starts; then the daemons, the last one first."""
        if len(self.running) == len(DAEMONS):
            self.user("scancel", "--user", str(os.geteuid()))
            support.comes_true(lambda: not self.user("squeue", "--noheader").out.strip(), 15)
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self.running):
                process.send_signal(signal_number)  # nothing, to one that has ended
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)


class Slurm(support.ProcessTest):
    cluster = None

    @classmethod
    def setUpClass(cls):
        cls.boards = support.stale_boards()
        folder = support.new_path("slurm")
        cls.cluster = Cluster(folder)
        cls.addClassCleanup(cls.cluster.end)
        cls.cluster.begin_all()
        scripts = re.findall(r"```text\n(#!/bin/bash\n.*?)```", read(PAGE), re.S)
        place = support.repository()
        cls.scripts = [write(f"{place}/{number}.sbatch", text) for number, text in enumerate(scripts)]

    def submit(self, *command):
        ended = self.cluster.user("sbatch", "--parsable", *command)
        self.assertEqual(ended.code, 0, ended)
        job = ended.out.strip()
        return job, os.path.join(support.repository(), f"zero3-{job}.log")

    def files(self):
        return support.files_of("04_zero3") + ["--data", os.path.join(support.scratch, "tokens.bin")]

    def test_the_script_of_one_node(self):
        job, log = self.submit(self.scripts[0], *self.files(), "--steps", "3", "--brief")
        self.assertEqual(self.cluster.ends(job), ("COMPLETED", "0"), read(log))
        self.assertRegex(read(log), r"\A(.*as predicted\n){2}loss .*record: \S+\n\Z")
        self.assertTrue(
            support.comes_true(lambda: support.stale_boards() <= self.boards),
            support.stale_boards() - self.boards,
        )

    def test_the_script_that_saves_and_queues_itself_again(self):
        job, log = self.submit(self.scripts[1], *self.files(), "--steps", "100000")
        self.assertTrue(support.comes_true(lambda: os.path.exists(log) and "\nstep" in read(log), 30))
        self.cluster.user("scancel", "--batch", "--signal=USR1", job)
        pending = lambda: self.cluster.state(job)[0] == "PENDING"
        self.assertTrue(support.comes_true(pending, 20), read(log))
        found = re.search(r"interrupted at step (\d+); (\d+) steps are saved", read(log))
        self.assertTrue(found, read(log))
        saved = f"{support.repository()}/runs/checkpoints-{job}/{support.step(int(found[2]))}"
        self.assertTrue(os.path.isdir(saved))
        self.cluster.user("scancel", job)

    def test_one_rank_and_a_plan_in_a_job_of_two_tasks(self):
        run = "lessons/04_zero3/run.sh --preset cpu --no-build"
        files = " ".join(self.files())
        script = write(
            f"{support.repository()}/alone.sbatch",
            f"""#!/bin/bash
#SBATCH --ntasks=2 --output=zero3-%j.log
{run} {files} --plan >/dev/null && {run} {files} -n 1 --steps 2 --brief
""",
        )
        job, log = self.submit(script)
        self.assertEqual(self.cluster.ends(job), ("COMPLETED", "0"), read(log))

    def test_plain_srun_is_refused(self):
        ended = self.cluster.user(
            "srun", "--ntasks=2", support.program("04_zero3"), *self.files(), "--steps", "2"
        )
        self.assertEqual(ended.code, 69, ended)
        said = (
            "error: launcher: Slurm started 2 tasks (SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=2) without PMIx: "
            "each would be a world of one rank\n"
            "  fix: srun --mpi=pmix ...\n"
        )
        self.assertIn(said, ended.err)
        self.assertIn(said.split("\n", maxsplit=1)[0].split("each")[0], read(PAGE))

    def test_srun_that_speaks_pmix(self):
        if "pmix" not in self.cluster.user("srun", "--mpi=list").said:
            self.skipTest("this Slurm has no PMIx")
        ended = self.cluster.user(
            "srun", "--ntasks=2", "--mpi=pmix", support.program("04_zero3"), *self.files(), "--steps", "2"
        )
        self.assertEqual(ended.code, 0, ended)
        self.assertIn(", on 2 ranks: ", ended.out)

    def test_srun_in_front_of_run_sh_is_refused(self):
        ended = self.cluster.user("srun", "--ntasks=2", *support.run_sh("04_zero3", 2, "--steps", "2"))
        self.assertEqual(ended.code, 69, ended)
        self.assertEqual(ended.err.count("error: launcher: "), 1, ended)
        self.assertIn(
            "error: launcher: srun started run.sh 2 times, and each would start a run of its own\n", ended.err
        )
        self.assertIn("srun started run.sh 2 times, and each would start a run of its own", read(PAGE))


if __name__ == "__main__":
    REASON = why_not()
    if REASON:
        print(f"skipped: {REASON}")
        sys.exit(77)
    support.main()

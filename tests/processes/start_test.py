#!/usr/bin/env python3
"""Before any rank runs: what keeps the real mpirun from starting ranks is one error, with its own words; and
what a log holds.

usage: start_test.py build/cpu/bin
"""

import os
import pathlib
import re

import support
from support import Run

LESSON = "01_data_parallel"
ANOTHER_USER = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"]


def job(command=(), text="--steps 2", **variables):
    """run.sh on two ranks with these variables; None takes one away. mpirun's folder is where TMPDIR says."""
    env = support.environment(**{key: value for key, value in variables.items() if value is not None})
    for key in variables:
        if variables[key] is None:
            env.pop(key, None)
    out = "" if "--out" in text else f"--out {support.new_path('out')}"
    line = [*command, *support.run_sh(LESSON, 2, f"{text} {out}")]
    return support.finished(line, env=env, cwd=support.scratch)


class StartTest(support.ProcessTest):
    def expect_refused(self, ended, where, words):
        self.expect_one_error(ended, 69, ())
        self.assertEqual(len(re.findall("(?m)^  fix: ", ended.err)), 1, ended)
        self.assertRegex(ended.err, f"(?m)^error: {where}")
        self.assertRegex(ended.err.partition("\n  mpirun's own words:\n")[2], words)
        self.assertNotIn("step 1", ended.out)

    def test_a_folder_that_cannot_be(self):
        self.expect_refused(job(TMPDIR="/proc"), "TMPDIR /proc: ", "Directory: /proc/")

    def test_files_of_hosts(self):
        for path, wrong in (
            (support.new_file("cr", "localhost slots=2\r\n"), "parse error"),
            (support.new_file("binary", b"\x7fELF\x02\x01\0\0"), "parse error"),
            (support.new_path("none"), "unable to open"),
        ):
            with self.subTest(path):
                self.expect_refused(
                    job(OMPI_MCA_orte_default_hostfile=path),
                    f"OMPI_MCA_orte_default_hostfile {re.escape(path)}: ",
                    wrong,
                )

    def test_settings_of_open_mpi(self):
        for name, value in (
            ("btl", "self"),
            ("pml", "cm"),
            ("plm", "none"),
            ("ess", "none"),
            ("orte_do_not_launch", "1"),
            ("mca_base_component_path", "/none"),
        ):
            with self.subTest(f"{name}={value}"):
                ended = job(**{f"OMPI_MCA_{name}": value})
                self.expect_refused(ended, "mpirun: ", r"\S")
                self.assertIn(f"OMPI_MCA_{name}", ended.err)

    def folder_of_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        root = pathlib.Path(support.ROOT).resolve()
        if not all(folder.stat().st_mode & 0o001 for folder in (root, *root.parents)):
            self.skipTest("another user cannot reach this repository")
        os.chmod(support.scratch, 0o755)
        folder = support.new_folder("own")
        os.chown(folder, 12345, 12345)
        return folder

    def test_a_user_without_a_home(self):
        self.folder_of_another_user()
        # The error shows how far the program came: it cannot write to another user's working directory.
        self.expect_one_error(job(ANOTHER_USER, HOME=None), 73, ())

    def test_a_home_of_nobody(self):
        """What is made of a text is kept where it can be, and an error says how to name such a place."""
        folder = self.folder_of_another_user()
        content = f"{folder} {os.urandom(8).hex()} " * 200
        pathlib.Path(folder, "text.txt").write_text(content, encoding="utf-8")
        text = f"--steps 2 --data {folder}/text.txt --out {folder}/out"
        said = (
            re.escape(f"{support.ROOT}/.cache")
            + r".*: cannot .*\n  fix: .*; STAGECRAFT_CACHE=DIR keeps what is made of a text elsewhere"
        )
        own = {"XDG_CACHE_HOME": None, "TMPDIR": folder}
        for home in (None, "/nonexistent"):
            ended = job(ANOTHER_USER, text, HOME=home, STAGECRAFT_CACHE=None, **own)
            self.expect_one_error(ended, 73, (re.compile(rf"\A{said}"),))
        ended = job(ANOTHER_USER, text, HOME="/nonexistent", STAGECRAFT_CACHE=folder, **own)
        self.assertEqual(ended.code, 0, ended)

    def test_folders_that_may_not_be_searched(self):
        """What is written there cannot be; what is read there is a file that cannot be read."""
        folder = self.folder_of_another_user()
        locked = folder + "/locked"
        os.makedirs(locked + "/there")
        os.chmod(locked, 0o666)

        def ended(flags):
            text = f"--steps 2 {flags}" if "--out" in flags else f"--steps 2 --out {folder}/out {flags}"
            return job(ANOTHER_USER, text, TMPDIR=folder, STAGECRAFT_CACHE=folder)

        said = (
            rf"{locked}/\S+: cannot look at: Permission denied \(EACCES\)\n  fix: write where you have "
            r"permission"
        )
        for path in (locked + "/new", locked + "/there/new"):
            for flags in ("--out", "--save", "--save-every 1 --checkpoints"):
                with self.subTest(flags=flags, path=path):
                    self.expect_one_error(ended(f"{flags} {path}"), 73, (re.compile(rf"\A{said}"),))
        for flags in (f"--init {locked}/x", f"--resume {locked}/there", f"--data {locked}/x.txt"):
            with self.subTest(flags=flags):
                self.assertEqual(ended(flags).code, 65)

    def test_a_log_has_no_escape_codes(self):
        """Under mpirun every rank's stdout is a terminal. /dev/shm has no O_DIRECT, which is worth a
        warning."""
        disk = f"/dev/shm/stagecraft-start-test-{os.getpid()}"
        os.mkdir(disk)
        try:
            ended = Run("06_infinity", 2, f"--steps 2 --disk {disk}", sh=True).ended
        finally:
            os.rmdir(disk)
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("[warning]", ended.out)
        self.assertNotIn("\x1b", ended.said)

    def test_without_a_network(self):
        """What is set up and built needs none; mpirun takes the loopback, which every machine has."""
        alone = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        self.needs([*alone, "true"], "no network namespace can be made here (unshare -rn, ip)")
        self.expect_well(job(alone))

    def test_processor_time_is_not_memory(self):
        for ranks in support.chosen((1, 2), 2):
            with self.subTest(ranks=ranks):
                line = Run(LESSON, ranks, "--steps 100000", sh=True).line
                ended = support.execute(["bash", "-c", 'ulimit -t 2 && exec "$@"', "bash", *line])
                self.expect_one_error(ended, 75, ("processor time",))
                self.assertNotIn("memory", ended.err)

    def test_nobody_reads(self):
        line = " ".join(Run(LESSON, 1, "--steps 100000", sh=True).line)
        ended = support.execute(["bash", "-c", f"{line} | head -n 1; exit ${{PIPESTATUS[0]}}"])
        self.assertEqual(ended.code, 75, ended)
        self.assertRegex(
            ended.err, r"\Aerror: 01_data_parallel: rank 0 was killed \(SIGPIPE\)\n  fix: [^\n]+\n\Z"
        )


if __name__ == "__main__":
    support.main()

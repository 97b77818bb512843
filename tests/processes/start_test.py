#!/usr/bin/env python3
"""Before any rank runs: what keeps the real mpirun from starting ranks is one error, with its own words; and what a log holds.

usage: start_test.py build/cpu/bin
"""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import support  # noqa: E402

LESSON = "01_data_parallel"
ANOTHER_USER = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"]


def job(ranks=2, lesson=LESSON, command=(), flags=None, **more):
    """run.sh with these variables; None takes one away. mpirun's folder is where TMPDIR says."""
    env = {
        k: v
        for k, v in support.environment(**{k: v for k, v in more.items() if v is not None}).items()
        if k not in more or more[k] is not None
    }
    line = [
        *command,
        *support.run_sh(lesson, ranks, *(flags or ("--steps", "2", "--out", support.new_path("out")))),
    ]
    done = subprocess.run(
        line,
        env=env,
        cwd=support.scratch,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=support.DEADLINE,
        check=False,
    )
    return support.Ended(done.returncode, done.stdout, done.stderr)


class StartTest(support.ProcessTest):
    def expect_refused(self, ended, where, words):
        self.assertEqual(ended.code, 69, ended)
        self.assertEqual(len(re.findall("(?m)^error: ", ended.err)), 1, ended)
        self.assertEqual(len(re.findall("(?m)^  fix: ", ended.err)), 1, ended)
        self.assertRegex(ended.err, f"(?m)^error: {where}")
        self.assertRegex(ended.err.partition("\n  mpirun's own words:\n")[2], words)
        self.assertNotIn("step 1", ended.out)

    def test_a_folder_that_cannot_be(self):
        self.expect_refused(job(TMPDIR="/proc"), "TMPDIR /proc: ", "Directory: /proc/")

    def test_files_of_hosts(self):
        for name, text, wrong in (
            ("cr", b"localhost slots=2\r\n", "parse error"),
            ("binary", b"\x7fELF\x02\x01\0\0", "parse error"),
            ("none", None, "unable to open"),
        ):
            path = support.new_path(name)
            if text is not None:
                with open(path, "wb") as file:
                    file.write(text)
            with self.subTest(name):
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
        folder = support.new_path("own")
        os.chmod(support.scratch, 0o755)
        os.mkdir(folder)
        os.chown(folder, 12345, 12345)
        return folder

    def test_a_user_without_a_home(self):
        self.folder_of_another_user()
        ended = job(HOME=None, command=ANOTHER_USER)
        self.assertEqual(ended.code, 73, ended)  # the working directory is not this user's: that far it came
        self.assertEqual(len(ended.errors), 1, ended)

    def test_a_home_of_nobody(self):
        """What is made of a text is kept where it can be, and an error says how to name such a place."""
        folder = self.folder_of_another_user()
        with open(folder + "/text.txt", "w", encoding="utf-8") as file:
            file.write(f"{folder} {os.urandom(8).hex()} " * 200)
        flags = ["--steps", "2", "--data", folder + "/text.txt", "--out", folder + "/out"]
        for home, cache in ((None, None), ("/nonexistent", None), ("/nonexistent", folder)):
            ended = job(
                HOME=home,
                XDG_CACHE_HOME=None,
                STAGECRAFT_CACHE=cache,
                TMPDIR=folder,
                command=ANOTHER_USER,
                flags=flags,
            )
            self.assertEqual(ended.code, 0 if cache else 73, ended)
            if not cache:
                self.assertRegex(
                    ended.err,
                    re.escape(f"error: {support.ROOT}/.cache")
                    + r".*: cannot .*\n  fix: .*; STAGECRAFT_CACHE=DIR keeps what is made of a text elsewhere\n",
                )

    def test_folders_that_may_not_be_searched(self):
        """What is written there cannot be; what is read there is a file that cannot be read."""
        folder = self.folder_of_another_user()
        os.mkdir(folder + "/locked", 0o666)
        os.mkdir(folder + "/locked/there")
        os.chmod(folder + "/locked", 0o666)

        def ended(*flags):
            out = [] if "--out" in flags else ["--out", folder + "/out"]
            return job(
                TMPDIR=folder,
                STAGECRAFT_CACHE=folder,
                command=ANOTHER_USER,
                flags=["--steps", "2", *out, *flags],
            )

        for path in (folder + "/locked/new", folder + "/locked/there/new"):
            for flags in (
                ["--out", path],
                ["--save", path + ".safetensors"],
                ["--save-every", "1", "--checkpoints", path],
            ):
                with self.subTest(flags=flags):
                    refused = ended(*flags)
                    self.assertEqual((refused.code, len(refused.errors)), (73, 1), refused)
                    self.assertRegex(
                        refused.err,
                        rf"error: {folder}/locked/\S+: cannot look at: Permission denied \(EACCES\)\n  fix: write where you have permission",
                    )
        for flags in (
            ["--init", folder + "/locked/x"],
            ["--resume", folder + "/locked/there"],
            ["--data", folder + "/locked/x.txt"],
        ):
            with self.subTest(flags=flags):
                self.assertEqual(ended(*flags).code, 65)

    def test_a_log_has_no_escape_codes(self):
        """Under mpirun every rank's stdout is a terminal. /dev/shm has no O_DIRECT, which is worth a warning."""
        disk = f"/dev/shm/stagecraft-start-test-{os.getpid()}"
        os.mkdir(disk)
        try:
            line = support.run_sh(
                "06_infinity", 2, "--steps", "2", "--disk", disk, "--out", support.new_path("out")
            )
            ended = support.execute(line)
        finally:
            os.rmdir(disk)
        self.assertEqual(ended.code, 0, ended)
        self.assertIn("[warning]", ended.out)
        self.assertNotIn("\x1b", ended.out + ended.err)

    def test_processor_time_is_not_memory(self):
        for ranks in support.chosen((1, 2), 2):
            with self.subTest(ranks=ranks):
                line = support.run_sh(LESSON, ranks, "--steps", "100000", "--out", support.new_path("out"))
                ended = support.execute(["bash", "-c", 'ulimit -t 2 && exec "$@"', "bash", *line])
                self.assertEqual(ended.code, 75, ended)
                self.assertEqual(len(ended.errors), 1, ended)
                self.assertIn("processor time", ended.err)
                self.assertNotIn("memory", ended.err)

    def test_nobody_reads(self):
        line = " ".join(support.run_sh(LESSON, 1, "--steps", "100000", "--out", support.new_path("out")))
        ended = support.execute(["bash", "-c", f"{line} | head -n 1; exit ${{PIPESTATUS[0]}}"])
        self.assertEqual(ended.code, 75, ended)
        self.assertRegex(
            ended.err, r"\Aerror: 01_data_parallel: rank 0 was killed \(SIGPIPE\)\n  fix: [^\n]+\n\Z"
        )


if __name__ == "__main__":
    support.main()

"""Bad command lines, configurations, data, weights, paths, launchers and limits: the exit code and the exact
words, said once, by a program without a launcher and by three ranks alike (AT_THREE; the rest takes the same
way). tests/config has the other bad configurations."""

import os
import pathlib
import re

import support

LESSON = "01_data_parallel"

FORMAT = "\n  fix: give a text file, or a 2-byte token file of llm.c (magic 20240520, version 1)"
PATH = "\n  fix: check the path (it is relative to the working directory)"
FLAGS = "\n  fix: --help lists the flags"
ARGUMENTS = "\n  fix: --help lists the flags and their arguments"
FILE_SYSTEM = "\n  fix: something else has that name: give another one, or move it away"
LAUNCHER = "\n  fix: start this program with mpirun or srun --mpi=pmix, or unset these variables"
NOT_SAFETENSORS = "\n  fix: the file is cut off or is not safetensors: fetch or write it again"

# Flags with the exit code and message of their refusal.
COMMAND_LINES = {
    "--bukcet unit": (64, "--bukcet: there is no such flag" + FLAGS),
    "--step 5": (64, "--step: there is no such flag; did you mean --steps?" + FLAGS),
    ("", "stray"): (64, '"stray": not a flag; every argument belongs to one' + FLAGS),
    "--steps": (64, "command line: Option 'steps' is missing an argument" + ARGUMENTS),
    "--set steps": (64, "--set steps: key=value is expected\n  fix: e.g. --set batch.micro=2"),
    "--set bucket=big": (
        64,
        '--set bucket=big: bucket: "big" is none of tensor, unit, model\n  fix: bucket takes choice or '
        "integer: tensor, unit, model, or at least 1 (default unit)",
    ),
    "--world 4": (
        64,
        "--world 4: it belongs to --plan; a run has as many ranks as were started\n"
        "  fix: add --plan, or start the ranks: run.sh -n 4",
    ),
    "--device gpu": (
        64,
        '--device gpu: "gpu" is none of auto, cpu, cuda; did you mean "cpu"?\n'
        "  fix: --device takes auto, cpu, cuda",
    ),
    "--device cuda": (
        69,
        re.compile(
            r"--device cuda: this build has no GPU code\n"
            r"  fix: (run\.sh --preset cuda, or --device cpu|--device cpu, which trains in fp32 \(--plan "
            r"needs no GPU\): no GPU is visible on this machine)"
        ),
    ),
    "--threads 0": (64, "--threads 0: 0 is outside its range, 1 .. 1024\n  fix: --threads takes 1 .. 1024"),
    "--watchdog 0": (
        64,
        "--watchdog 0: 0 is outside its range, 0.1 <= x <= 86400\n  fix: --watchdog takes 0.1 <= x <= 86400",
    ),
    "--json": (64, "--json: it is how --plan prints\n  fix: --plan --json"),
    "--plan=1": (64, "--plan 1: a switch takes no value\n  fix: --plan alone"),
    "--plan --inject kill@0,1": (
        64,
        "--inject: it belongs to a run; --plan only predicts one\n  fix: leave one of them out",
    ),
    "--inject kill@0,1000": (
        64,
        "--inject kill@0,1000: this run's steps are 0 to 3\n  fix: one of them (they count from 0), or more "
        "--steps",
    ),
    "--graph off": (
        64,
        "--graph: it is about GPUs, and this is on the CPU\n  fix: leave it out, or --device cuda",
    ),
    "--set model.width=65536 --set model.heads=1 --set model.layers=1024 --set batch.micro=16777216 --set "
    "batch.global=16777216 "
    "--set batch.sequence=1048576 --set model.context=1048576": (
        64,
        re.compile(
            r".*: a run of this size would hold more bytes than 64 bits can count\n  fix: a smaller "
            r"model\.width, model\.layers, "
            r"batch\.micro or batch\.sequence"
        ),
    ),
    "--memory-cap lots": (
        64,
        '--memory-cap lots: "lots" is not a size; write e.g. 6GB, 512MiB or 1e9\n'
        "  fix: --memory-cap takes bytes, or e.g. 6GB, 512MiB",
    ),
    "--inject hang": (64, "--inject hang: there is no @\n  fix: write kind@rank,step, for example hang@1,7"),
    "--inject hong@0,2": (64, '--inject hong@0,2: there is no fault "hong"\n  fix: did you mean hang?'),
    "--inject kill@0,-1": (64, "--inject kill@0,-1: step -1 never comes\n  fix: steps count from 0"),
    "--explain bukcet": (64, '--explain bukcet: there is no key "bukcet"\n  fix: --explain bucket'),
}
CONFIGURATIONS = {
    "--set batch.micro=5": (
        64,
        re.compile(
            r"--set batch\.micro=5: accumulation = global / \(micro x data-parallel ranks\) = 12 / \(5 x "
            r"(1|3)\) = [\d.]+, "
            r"which is not whole\n  fix: one of\n    --set batch\.global=\d+.*\n    --set batch\.micro=\d+.*"
        ),
    ),
    "--set model.heads=3": (
        64,
        "--set model.heads=3: model.width 32 is not a multiple of model.heads 3: a head would have "
        "10.67 elements\n  fix: --set model.width=30 or --set model.heads=2",
    ),
    "--set batch.sequence=64": (
        64,
        "--set batch.sequence=64: batch.sequence 64 is longer than model.context 32: there are no "
        "positions for the rest\n  fix: --set batch.sequence=32 or --set model.context=64",
    ),
    "--set precision.dtype=bf16": (
        64,
        "--set precision.dtype=bf16: precision.dtype bf16 needs a GPU: this run is on the CPU, "
        "which trains in fp32\n  fix: --set precision.dtype=fp32, or --device cuda",
    ),
}
DATA = {
    "--data empty.txt": (65, "empty.txt: is empty\n  fix: give a text file with some text in it"),
    "--data folder": (
        65,
        "folder: cannot open: Is a directory (EISDIR)\n  fix: give the path of a file, not of a directory",
    ),
    "--data nowhere.txt": (65, "nowhere.txt: cannot open: No such file or directory (ENOENT)" + PATH),
    "--data range.bin": (
        65,
        "range.bin: token 5,000 is 300, but the vocabulary has 257 entries\n"
        "  fix: --set model.vocab=301 or more, or give tokens of this vocabulary",
    ),
    "--data magic.bin": (
        65,
        "magic.bin: magic 20240801 instead of 20240520: these are llm.c's 4-byte tokens of Llama 3" + FORMAT,
    ),
    "--data version.bin": (65, "version.bin: version 2 instead of 1" + FORMAT),
    "--data count.bin": (
        65,
        "count.bin: the header counts 5 tokens, 1034 bytes in all, but the file has 3024" + FORMAT,
    ),
    "--data cut.bin": (65, "cut.bin: 3 bytes; a token file starts with a header of 1024" + FORMAT),
    "--data short.bin": (
        65,
        "short.bin: the training part has 19 tokens, 0 rows of 32; needed: one row, 33 tokens\n"
        "  fix: give a longer text or a smaller batch.sequence",
    ),
    "--data few.bin": (
        65,
        "few.bin: the validation part has 25 tokens, 0 rows of 32; needed: 2 (data.validation_rows)\n"
        "  fix: give a longer text, or --set data.validation_fraction=0.13",
    ),
    "--data zero.txt": (
        65,
        "zero.txt: is not text: byte 3 is zero\n  fix: give UTF-8; for UTF-16: iconv -f UTF-16 -t UTF-8; "
        "unpack what is compressed",
    ),
}
WEIGHTS = {
    "--init nowhere.safetensors": (
        65,
        "nowhere.safetensors: cannot open: No such file or directory (ENOENT)" + PATH,
    ),
    "--init right.safetensors --set model.width=64": (
        65,
        "right.safetensors: tensor 'transformer.wte.weight' is [257, 32], the workload's model needs [257, "
        "64]\n"
        "  fix: a workload with the file's model: layers 2, vocab 257, width 32, context 32",
    ),
    "--init right.safetensors --set model.layers=1": (
        65,
        "right.safetensors: tensor 'transformer.h.1.attn.c_attn.bias' does not belong to the workload's "
        "model\n"
        "  fix: a workload with the file's model: layers 2, vocab 257, width 32, context 32",
    ),
    "--init right.safetensors --set model.layers=3": (
        65,
        "right.safetensors: tensor 'h.2.ln_1.weight' is missing\n"
        "  fix: a workload with the file's model: layers 2, vocab 257, width 32, context 32",
    ),
    "--init long_header.safetensors": (
        65,
        "long_header.safetensors: header length 18446744073709551615 at byte 0 is above the limit of 16000000"
        + NOT_SAFETENSORS,
    ),
    "--init cut.safetensors": (
        65,
        "cut.safetensors: header of 16 bytes at byte 8 ends past the file's 9 bytes" + NOT_SAFETENSORS,
    ),
}
PATHS = {
    "--out file/below": (73, "file: cannot create the directory: File exists (EEXIST)" + FILE_SYSTEM),
    "--save file/below": (73, "file: cannot create the directory: File exists (EEXIST)" + FILE_SYSTEM),
    "--save folder": (
        73,
        "folder: is a directory, and a file is to be written\n  fix: give the path of a file",
    ),
}
LIMITS = {
    "--memory-cap 150000": (
        69,
        re.compile(
            r"--memory-cap 150\.00 kB: a rank would hold [\d.]+ [kM]B, [\d.]+ [kM]B more than that\n(  "
            r"[a-z]+ +[\d.]+ [kM]?B\n)+"
            r"  fix: one of these fits, and a rank holds\n(  .+ [\d.]+ [kM]B\n?)+"
        ),
    ),
    # A block of this width has 12 d^2 elements, more than any machine can hold.
    "--set model.layers=16 --set model.width=65536 --set batch.sequence=1": (
        69,
        re.compile(
            r"[\d.]+ [kMGT]?B free on this machine, ranks here: \d: a rank would hold [\d.]+ TB, [\d.]+ TB "
            r"more than its share\n"
            r"(  [a-z]+ +[\d.]+ [kMGT]?B\n)+  fix: a smaller model\.\*, or more machines"
        ),
    ),
}


AT_THREE = support.chosen(
    [
        "--bukcet unit",
        "--steps",
        "--device cuda",
        "--inject hang",
        "--set batch.micro=5",
        "--data empty.txt",
        "--data range.bin",
        "--data cut.bin",
        "--data short.bin",
        "--init nowhere.safetensors",
        "--init cut.safetensors",
        "--init right.safetensors --set model.layers=3",
        *PATHS,
        "--memory-cap 150000",
    ],
    "--bukcet unit",
    "--set batch.micro=5",
    "--data range.bin",
    "--init cut.safetensors",
    "--save folder",
    "--memory-cap 150000",
)
# Flags whose messages tests/config, tests/data, tests/model, tests/storage and tests/watch check; here as
# processes only with STAGECRAFT_SETTINGS=all. STAGECRAFT_SETTINGS=all.
ELSEWHERE = {
    "--step 5",
    ("", "stray"),
    "--set steps",
    "--set bucket=big",
    "--world 4",
    "--threads 0",
    "--watchdog 0",
    "--plan --inject kill@0,1",
    "--memory-cap lots",
    "--inject hong@0,2",
    "--inject kill@0,-1",
    "--explain bukcet",
    "--set model.heads=3",
    "--set batch.sequence=64",
    "--data folder",
    "--data nowhere.txt",
    "--data magic.bin",
    "--data version.bin",
    "--data count.bin",
    "--data few.bin",
    "--data zero.txt",
    "--init right.safetensors --set model.width=64",
    "--init right.safetensors --set model.layers=1",
    "--init long_header.safetensors",
}


def make_files():
    """What the flags above name."""
    text = [(7 * i) % 256 for i in range(10000)]
    place = support.scratch
    support.write_tokens(place + "/range.bin", text[:5000] + [300] + text[:4000])
    support.write_tokens(place + "/magic.bin", text, magic=20240801)
    support.write_tokens(place + "/version.bin", text, version=2)
    support.write_tokens(place + "/count.bin", text[:1000], count=5)
    support.write_tokens(place + "/short.bin", text[:20])
    support.write_tokens(place + "/few.bin", text[:500])
    contents = {
        "empty.txt": b"",
        "zero.txt": b"abc\0def",
        "cut.bin": b"abc",
        "file": b"x",
        "long_header.safetensors": b"\xff" * 100,
        "cut.safetensors": b"\x10" + b"\0" * 7 + b"{",
    }
    for name, content in contents.items():
        pathlib.Path(place, name).write_bytes(content)
    os.mkdir(place + "/folder")
    saved = support.run(LESSON, 0, "--steps 1 --save right.safetensors")
    assert saved.code == 0, saved


class BadInput(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        make_files()

    def check(self, cases):
        """Checks each case with a program without a launcher, and the cases of AT_THREE with three ranks as
        well; nothing may be promised before the mistake is found."""
        boards = support.stale_boards()
        for ranks in (0, 3):
            some = {
                flags: said
                for flags, said in cases.items()
                if (support.all_settings() or flags not in ELSEWHERE) and (ranks == 0 or flags in AT_THREE)
            }
            for job in self.expect_ends(some, LESSON, ranks, silent=True).values():
                self.expect_nothing_left(job.out, boards)

    def test_command_lines(self):
        self.check(COMMAND_LINES)

    def test_configurations(self):
        self.check(CONFIGURATIONS)

    def test_data(self):
        self.check(DATA)

    def test_weights(self):
        self.check(WEIGHTS)

    def test_paths(self):
        self.check(PATHS)

    def test_limits(self):
        self.check(LIMITS)

    def test_memory_that_is_free_but_not_given(self):
        support.skip_with_a_sanitizer()
        little = ["bash", "-c", 'ulimit -v 3000000; exec "$0" "$@"']
        text = "model.layers=4 model.width=2048 batch.sequence=1"
        self.expect_one_error(
            support.execute([*little, *support.command(LESSON, 0, text)]),
            69,
            re.compile(
                r"memory: [a-z]+ '[a-z_ ]+' asks for [\d.]+ [MG]B, which this machine does not give "
                r"\([\d.]+ [kMG]?B are in use\)\n"
                r"  fix: a smaller batch\.micro, activations=recompute, or a strategy that shards more"
            ),
        )

    def test_of_a_world(self):
        self.expect_ends(
            {
                (LESSON, 0, "--inject kill@1,2"): (
                    64,
                    "--inject kill@1,2: rank 1 is not in a world of 1\n  fix: the only rank is 0",
                ),
                (LESSON, 3, "--inject kill@3,2"): (
                    64,
                    "--inject kill@3,2: rank 3 is not in a world of 3\n  fix: ranks are 0 to 2",
                ),
                ("00_one_device", 2): (
                    64,
                    "-n: 00_one_device is one rank; 2 were asked for\n"
                    "  fix: -n 1, and --virtual-ranks 2 to add gradients as that world would",
                ),
            },
            silent=True,
        )

    def test_files_of_a_run(self):
        for text in ("--workload tniy.json", f"--workload {support.WORKLOAD} --strategy nowhere.json"):
            *_, flag, name = text.split()
            self.expect_one_error(
                support.tool(LESSON, *text.split()),
                64,
                re.compile(f"{flag} {name}: {name} cannot be read\n  fix: .*"),
            )

    def test_run_sh(self):
        script = f"lessons/{LESSON}/run.sh"
        for flags, said, fix in (
            ("-n two", "-n: 'two' is not a number of ranks (1 to 9999)", "-n 2"),
            ("-n", "-n: its value is missing", "--help"),
            ("--preset gpu", "--preset: 'gpu' is neither cpu nor cuda", "--preset cpu"),
        ):
            ended = support.execute([f"{support.repository()}/{script}", *flags.split()])
            self.expect_one_error(ended, 64, f"{said}\n  fix: {script} {fix}")


class Launchers(support.ProcessTest):
    HALF = "launcher: OMPI_COMM_WORLD_RANK=0 but OMPI_COMM_WORLD_SIZE is not set" + LAUNCHER

    def test_variables_of_a_launcher(self):
        for ranks, variables, each, code, said in (
            (0, {"OMPI_COMM_WORLD_RANK": "0"}, (), 64, self.HALF),
            (3, {}, ("env", "-u", "OMPI_COMM_WORLD_SIZE"), 64, self.HALF),
            (
                3,
                {},
                ("env", "OMPI_COMM_WORLD_SIZE=4"),
                69,
                "launcher: Open MPI started rank 0 of 4, but MPI is rank 0 of 3\n"
                "  fix: start it with the mpirun of the MPI that it was built with",
            ),
            (
                0,
                {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
                (),
                69,
                "launcher: Slurm started 4 tasks (SLURM_PROCID=0, SLURM_NTASKS=4) without PMIx: each would "
                "be a world of one rank\n  fix: srun --mpi=pmix ...",
            ),
        ):
            with self.subTest(ranks=ranks, variables=variables, each=each):
                line = support.command(LESSON, ranks, each=each)
                self.expect_one_error(support.execute(line, support.environment(**variables)), code, said)

    def test_a_mistake_of_one_rank_alone_is_said(self):
        one = support.command(LESSON, 0)
        ended = support.execute([*support.mpirun(1), *one, ":", "-n", "1", *one, "--threads", "0"])
        self.expect_one_error(
            ended,
            64,
            "rank 1: --threads 0: 0 is outside its range, 1 .. 1024\n  fix: --threads takes 1 .. 1024",
        )


if __name__ == "__main__":
    support.main()

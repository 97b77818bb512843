#!/usr/bin/env python3
"""Builds the tests of a few damaged files without building the project: only what differs is compiled, with
the flags of an existing build, and linked before the libraries of that build, whose objects for the same
files are then left out. Tests are ctest's entries.

usage: tests/mutate/relink.py ROOT BUILD   in a copy of ROOT (mutate.py's); BUILD: ROOT's build folder

Compares the files of TESTS with ROOT's, compiles those that differ, links the tests that they name, and
writes build/mutant/run.sh, which runs them with the GoogleTest filter in its first argument. Where nothing
differs: all tests, as they are. exit: 0; 1 a file does not compile or link
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCAL, MPI, SAMPLER, LOADER = "comm_local_test", "comm_mpi_test", "data_sampler_test", "data_loader_test"
LESSONS, ZERO, OFFLOAD, PIPELINE = "data_parallel_test", "zero_test", "offload_test", "pipeline_test"
HOST, INFINITY, OVERFLOW, VERSIONS = "host_optimizer_test", "infinity_test", "overflow_test", "versions_test"
COPIES, STEADY, TENSOR, PARTS, COMBINED = (
    "copies_test",
    "steady_test",
    "tensor_test",
    "model_parts_test",
    "combined_test",
)
SAVED, CHECKPOINT = "saved_state_test", "storage_checkpoint_test"
CONTEXT = "context_test"
FROZEN = (
    "frozen_plans_test"  # plan and ledger come from one declaration: this one is a witness of another time
)
# Tests that notice damage to each file. A header counts as part of the sources that compute with it.
TESTS = {
    **{f"common/watch/comm_op.{end}": [LOCAL, MPI, "watch_test", "records_test"] for end in ("cpp", "h")},
    "common/comm/op_check.cpp": [LOCAL],
    "common/comm/rank_sum.cpp": [LOCAL],
    "common/comm/local_communicator.cpp": [LOCAL],
    "common/comm/mpi/mpi_exchange.cpp": [MPI],
    "common/memory/ledger.cpp": ["memory_test"],
    "common/memory/allocator_witness.cpp": ["memory_test"],
    "common/data/rows.cpp": [SAMPLER],
    "common/data/sampler.cpp": [SAMPLER],
    "common/data/loader.cpp": [LOADER],
    "common/model/param_layout.cpp": ["param_layout_test"],
    **{f"common/model/{name}.cpp": [PARTS] for name in ("cpu_kernels", "init", "ops_aten_parts")},
    **{
        f"common/model/{name}.cpp": [TENSOR]
        for name in ("activation_buffers", "gpt_halves", "gpt_parts", "part_plan")
    },
    "common/model/ops_aten.cpp": ["model_ops_test"],
    "common/model/context_cut.cpp": ["context_cut_test"],
    **{f"common/model/{name}.cpp": [CONTEXT] for name in ("context_plan", "gpt", "hop_attention")},
    "common/optim/lr_schedule.cpp": ["lr_schedule_test"],
    "common/storage/atomic_dir.cpp": [CHECKPOINT],
    "common/storage/file_ops.cpp": ["storage_links_test"],
    "common/storage/run_lock.cpp": ["storage_run_lock_test"],
    **{
        f"common/storage/checkpoint/{name}.cpp": [CHECKPOINT]
        for name in ("entry", "file_writer", "generations", "manifest", "rank_file", "reader", "sums")
    },
    **{f"common/strategy/state_placement.{end}": [SAVED] for end in ("cpp", "h")},
    "common/strategy/owned_slice.cpp": [ZERO, PIPELINE],
    "common/strategy/passes.cpp": [LESSONS, ZERO, CONTEXT],
    "common/strategy/state_plan.cpp": [FROZEN, ZERO],
    "common/strategy/saved_state.cpp": [SAVED],
    **{f"common/offload/{name}.cpp": [OFFLOAD, INFINITY] for name in ("host_strategy", "update_scalars")},
    "common/offload/host_plan.cpp": [FROZEN, OFFLOAD, INFINITY],
    "common/offload/host_optimizer.cpp": [HOST, OFFLOAD, INFINITY, OVERFLOW],
    "common/offload/update_clock.h": [HOST, OFFLOAD, INFINITY],
    **{f"common/pipeline/{name}.cpp": [FROZEN, PIPELINE] for name in ("layers", "split")},
    **{f"common/pipeline/{name}.cpp": [FROZEN, PIPELINE, COMBINED] for name in ("share", "stage_memory")},
    "common/pipeline/stage_plan.cpp": [FROZEN, PIPELINE, STEADY, COMBINED],
    "common/pipeline/steps.cpp": [PIPELINE, STEADY],
    **{f"common/pipeline/{name}.cpp": [PIPELINE, VERSIONS] for name in ("messages", "slots")},
    "common/pipeline/stage.cpp": [PIPELINE, COPIES, VERSIONS],
    **{
        f"lessons/{lesson}/{path.name}": [FROZEN, *of["tests"]]
        for lesson, of in json.loads((ROOT / "lessons/lessons.json").read_text()).items()
        for path in sorted((ROOT / "lessons" / lesson).glob("*.cpp"))
        if path.name != "main.cpp"
    },
    "lessons/08_weight_versions/ring.h": [VERSIONS],
}
SOURCES_OF_HEADERS = {
    "common/strategy/state_placement.h": [
        f"common/strategy/{name}.cpp" for name in ("saved_state", "state_placement", "weights")
    ],
    "common/watch/comm_op.h": [
        "common/watch/comm_op.cpp",
        "common/watch/comm_record.cpp",
        "common/comm/mpi/mpi_exchange.cpp",
    ],
    "lessons/08_weight_versions/ring.h": [
        f"lessons/08_weight_versions/{name}.cpp"
        for name in ("weight_versions", "weight_versions_memory", "late_sums", "in_flight", "versions_read")
    ],
    "common/offload/update_clock.h": [
        "common/offload/update_scalars.cpp",
        "lessons/06_infinity/params_at.cpp",
        "lessons/06_infinity/state_file.cpp",
        *(
            f"lessons/{lesson}{part}.cpp"
            for lesson in ("05_offload/offload", "06_infinity/infinity")
            for part in ("", "_memory", "_state")
        ),
    ],
}
# Filters for test programs shared by several files: instead of all tests (*), only those run that can notice
# a mutant of the file.
NARROW = {
    name: f"*FrozenPlans*:Contents.*:*Zero{int(name[9]) - 1}*:Zero.*:*PlansOf*:*ModelStates*"
    for name in TESTS
    if re.match(r"lessons/0[234]_", name)
}
MPI_RANKS = 3  # the fewest at which left and right neighbour differ


def seconds(test):
    """A mutant may loop or wait for ever; three times what the test takes on a busy machine."""
    return 90 if test in (LESSONS, ZERO, OFFLOAD, INFINITY, PIPELINE, VERSIONS, TENSOR, CONTEXT) else 30


def all_tests():
    found = sorted({test for tests in TESTS.values() for test in tests})
    return sorted(found, key=lambda test: test != FROZEN)  # a third of a second, and it sees every size


class Linker:
    def __init__(self, root, build):
        self.root, self.build, self.here = pathlib.Path(root), pathlib.Path(build), pathlib.Path.cwd()
        self.out = self.here / "build/mutant"
        self.out.mkdir(parents=True, exist_ok=True)
        self.commands = {
            e["file"]: e["command"] for e in json.loads((self.build / "compile_commands.json").read_text())
        }
        # ctest tells no command of a program that is not built. CMake 3 brackets names, 4 quotes them.
        self.entries = {
            name: shlex.split(command)
            for file in self.build.rglob("CTestTestfile.cmake")
            for name, command in re.findall(
                r'^add_test\((?:\[=*\[|")([^]"]+)\S* (.*)\)$', file.read_text(), re.M
            )
        }
        self.linked = {}
        self.units = {
            source: unit
            for unit in self.commands
            if "/Unity/unity_" in unit
            for source in re.findall(r'^#include "(.*)"$', pathlib.Path(unit).read_text(), re.MULTILINE)
        }

    def differing(self):
        return [name for name in TESTS if (self.here / name).read_bytes() != (self.root / name).read_bytes()]

    def unit_of(self, source):
        """What the build compiles: the file, or the unity source that includes it."""
        return self.units.get(str(self.root / source), str(self.root / source))

    def compile(self, unit):
        """Compiles the unit from the copy's files, and returns its object and the library that it belongs
        to: flags as in the build, but quick to compile, and with the library's own assertions."""
        words = shlex.split(self.commands[unit])
        name = os.path.relpath(unit, self.build if self.build in pathlib.Path(unit).parents else self.root)
        target, source = self.out / (name.replace("/", "_") + ".o"), self.here / name
        if name.endswith("_cxx.cxx"):
            source = self.out / name.replace("/", "_")
            source.write_text(pathlib.Path(unit).read_text().replace(f'"{self.root}/', f'"{self.here}/'))
        kept = words[: words.index("-o")]
        kept = [f"-I{self.here}" if word == f"-I{self.root}" else word for word in kept]
        launcher = ["ccache"] if shutil.which("ccache") else []
        run(
            launcher + kept + ["-w", "-O1", "-D_GLIBCXX_ASSERTIONS", "-o", str(target), "-c", str(source)],
            self.here,
        )
        return str(target), re.search(r"/CMakeFiles/(\w+)\.dir/", words[words.index("-o") + 1])[1]

    def link(self, program, objects):
        """The build's own link command, with those of `objects` in front whose library it names: of an
        inline function the first definition counts."""
        if not objects:
            return program
        if program not in self.linked:
            output = os.path.relpath(program, self.build)
            ninja = subprocess.run(
                ["ninja", "-C", str(self.build), "-t", "commands", output],
                capture_output=True,
                text=True,
                check=True,
            )
            command = ninja.stdout.strip().split("\n")[-1]
            target = str(self.out / os.path.basename(program))
            command = command.replace(f" -o {output}", f" -o {shlex.quote(target)}", 1)
            first = re.search(r" \S+\.o ", command).start()
            inserted = "".join(
                " " + shlex.quote(o) for o, library in objects if f"/lib{library}.a" in command
            )
            run(["bash", "-c", command[:first] + inserted + command[first:]], self.build)
            self.linked[program] = target
        return self.linked[program]

    def line_of(self, test, objects):
        """What ctest would run for this test, on the program linked with `objects`."""
        words = list(self.entries[f"{MPI}_{MPI_RANKS}" if test == MPI else test])
        program = next(i for i, word in enumerate(words) if self.build in pathlib.Path(word).parents)
        words[program] = self.link(words[program], objects)
        if test == MPI:
            words[words.index("--timeout") + 1] = str(seconds(test))
        else:
            words = ["timeout", str(seconds(test)), *words]
        return shlex.join(words) + ' --gtest_fail_fast --gtest_brief=1 --gtest_filter="$1"'


def run(command, folder):
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    linker = Linker(sys.argv[1], sys.argv[2])
    changed = linker.differing()
    sources = sorted({source for name in changed for source in SOURCES_OF_HEADERS.get(name, [name])})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(linker.compile, sorted({linker.unit_of(source) for source in sources})))
    tests = [t for t in all_tests() if any(t in TESTS[name] for name in changed)] if changed else all_tests()
    lines = [linker.line_of(test, objects) for test in tests]
    if len(changed) == 1 and changed[0] in NARROW:
        lines.insert(0, f"if [[ $1 == '*' ]]; then set -- '{NARROW[changed[0]]}'; fi")
    (linker.out / "run.sh").write_text(
        "set -e\ncd " + shlex.quote(str(linker.root)) + "\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()

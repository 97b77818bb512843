"""What scripts share that run lessons from beginning to end, one after the other."""
import argparse
import json
import os
import pathlib
import subprocess
import sys

from gpu_programs import ENVIRONMENT, MPIRUN, ROOT


def parser_of(about, required=False):
    """With their common arguments, which read_arguments() takes: the programs, and of which commit they are."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/cuda/bin", required=required)
    parser.add_argument(
        "--commit", required=required, help="of the programs, where this is no git checkout of theirs"
    )
    return parser


def read_arguments(parser):
    args = parser.parse_args()
    args.bin = args.bin.resolve()
    if args.commit:
        os.environ["STAGECRAFT_COMMIT"] = args.commit
    return args


def said_by(command):
    """What it prints, run from the repository's root. A failure ends this process, too."""
    words = [str(word) for word in command]
    print(" ".join(words), flush=True)
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **ENVIRONMENT}, text=True, capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(f"error: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def record_of(command, out, ranks=1):
    """Of a lesson's run, on as many GPUs as ranks."""
    launcher = [*MPIRUN, "-n", ranks] if ranks > 1 else []
    said_by([*launcher, *command, "--out", out])
    return json.loads((pathlib.Path(out) / "record.json").read_text())

#!/usr/bin/env python3
"""How padding that is not masked becomes a low loss: lesson 00 trained on packed text, on padded rows with a
mask, and without.

A row is a paragraph of the text, cut at T tokens and filled up to T with end-of-text (data.packing). Every
trained model is then evaluated in all three ways, so that what a model learned and how its loss is counted
can be told apart. An evaluation is a run of one step with a learning rate of 1e-30, which changes no
parameter, from the weights that the training saved.

  tests/benchmarks/padding.py
          CPU, random initial weights: docs/results/padding_cpu.json, minutes
  tests/benchmarks/padding.py --init gpt2.safetensors --workload configs/seed_355m.json --out pretrained.json
          your pretrained weights (Hugging Face names) in your workload

Needs build/cpu (tests/run.sh), or --program. Losses do not depend on the machine's speed.
"""
import array
import hashlib
import json
import pathlib
import statistics
import sys
import tempfile

from harness import (
    CPU_BIN,
    ONE_THREAD,
    ROOT,
    arguments,
    first_paragraph,
    out,
    record_in,
    said_by,
    sets,
    write,
)

WAYS = ("pack", "pad_masked", "pad_unmasked")
LAST = 20  # training steps whose mean loss is what a run "ends with"
UNCHANGED = "1e-30"  # learning rate that leaves every fp32 parameter as it is
# A small model on rows as long as WikiText tutorials pad them to, relative to the model's paragraphs.
SMALL = ["model.context=1024", "batch.global=4", "optim.warmup_steps=20"]
LENGTHS = (256, 512, 1024)
EVALUATED = "data.validation_rows=128"


def token_file(workload):
    """The documents that the lesson trained on: it keeps what it made of a text in .cache."""
    source = workload["data.source"]
    path = ROOT / ".cache/austen.txt" if source == "austen" else pathlib.Path(source)
    if path.suffix == ".bin":
        return path
    digits = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return ROOT / ".cache" / f"{digits}-{workload['data.tokenizer']}-documents-2.bin"


def share_of_text(workload):
    """The share of the evaluated rows' targets that are text, not filling (common/data/rows.h and sampler.h
    say which rows)."""
    tokens = array.array("H", token_file(workload).read_bytes()[256 * 4 :])
    held_out = int(len(tokens) * float(workload["data.validation_fraction"]))
    end, lengths, length = {"byte": 256, "gpt2": 50256}[workload["data.tokenizer"]], [], 0
    for token in tokens[len(tokens) - held_out :]:
        if token != end:
            length += 1
        elif length:
            lengths.append(length)
            length = 0
    lengths += [length] if length else []
    rows, sequence = (int(workload[key]) for key in ("data.validation_rows", "batch.sequence"))
    return sum(min(lengths[k * len(lengths) // rows], sequence) for k in range(rows)) / (rows * sequence)


class Program:
    def __init__(self, args, folder):
        self.args, self.folder, self.commit, self.versions = args, pathlib.Path(folder), None, None

    def run(self, name, settings, *flags):
        folder, program = self.folder / name, self.args.program
        strategy = ROOT / "lessons/00_one_device/config.json"
        words = ["--workload", self.args.workload, "--strategy", strategy]
        words += [*sets([*settings, *self.args.set]), "--threads", "1", *flags, "--out", folder]
        print("00_one_device", *words, file=sys.stderr, flush=True)
        said_by([program, *words], ONE_THREAD)
        record = record_in(folder)
        self.commit, self.versions = record["commit"], record["versions"]
        return record

    def evaluate(self, name, weights, way, settings):
        more = [] if self.args.init else [EVALUATED]
        return self.run(
            f"{name}_as_{way}",
            [*settings, f"data.packing={way}", f"optim.lr={UNCHANGED}", *more],
            "--steps",
            "1",
            "--init",
            weights,
        )

    def train(self, way, length, ways):
        settings = [*base(self.args), f"batch.sequence={length}"]
        name = f"{way}_{length}"
        weights = self.folder / f"{name}.safetensors"
        start = ["--init", self.args.init] if self.args.init else []
        record = self.run(
            name, [*settings, f"data.packing={way}"], "--steps", self.args.steps, *start, "--save", weights
        )
        losses = record["steps"]["loss"]
        evaluated = {other: self.evaluate(name, weights, other, settings) for other in ways}
        return {
            "trained": way,
            "sequence": length,
            "workload_hash": record["workload_hash"],
            "loss": [round(value, 4) for value in losses],
            "loss_at_end": round(statistics.mean(losses[-LAST:]), 4),
            "last_steps": LAST,
            "share_of_text": round(share_of_text(evaluated["pad_masked"]["workload"]), 4),
            "evaluated": {other: round(record["validation_loss"], 4) for other, record in evaluated.items()},
        }


def command_text(args):
    words = ["tests/benchmarks/padding.py", "--workload", args.workload, *sets(args.set)]
    return " ".join([*words, "--steps", args.steps, *(["--init", args.init.name] if args.init else [])])


def base(args):
    return [] if args.init else SMALL


def measure(args):
    longest = (
        LENGTHS[-1]
        if not args.init
        else json.loads(pathlib.Path(args.workload).read_text())["batch"]["sequence"]
    )
    with tempfile.TemporaryDirectory(prefix="stagecraft_padding_") as folder:
        program = Program(args, folder)
        given = (
            {way: program.evaluate("given", args.init, way, [])["validation_loss"] for way in WAYS}
            if args.init
            else None
        )
        runs = [program.train(way, longest, WAYS) for way in WAYS]
        if not args.init:
            runs += [program.train("pad_unmasked", length, WAYS[1:]) for length in LENGTHS[:-1]]
        return {
            "about": first_paragraph(__doc__),
            "weights": "given with --init" if args.init else "random",
            "workload": args.workload,
            "settings": [*base(args), *args.set],
            "steps": int(args.steps),
            "commit": program.commit,
            "versions": program.versions,
            "command": command_text(args),
            "before_training": given,
            "runs": runs,
        }


ASKED = {
    "--workload": {"default": "tests/workloads/four_blocks.json"},
    "--set": {
        "action": "append",
        "default": [],
        "metavar": "KEY=VALUE",
        "help": "as the lesson's; may be repeated",
    },
    "--steps": {"default": "300"},
    "--init": {
        "type": lambda text: pathlib.Path(text).resolve(),
        "help": "pretrained weights, safetensors; the default is random ones",
    },
    "--program": {"default": CPU_BIN / "00_one_device"},
    **out(pathlib.Path("docs/results/padding_cpu.json")),
}


def main():
    args = arguments(__doc__, ASKED)
    found = measure(args)
    write(args.out, found)
    for run in found["runs"]:
        losses = "  ".join(f"as {way} {loss:.3f}" for way, loss in run["evaluated"].items())
        print(
            f"trained {run['trained']:<13} T {run['sequence']:<5} text {run['share_of_text']:6.1%}  loss at "
            f"the end {run['loss_at_end']:.3f}  {losses}"
        )


if __name__ == "__main__":
    main()

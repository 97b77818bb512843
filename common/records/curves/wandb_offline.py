"""Writes an offline Weights & Biases run from JSON lines on stdin: first {name, config}, then {step, values}
each. curves.py starts it with the Python that has wandb; --probe says by its exit code whether this one has.

  usage: wandb_offline.py FOLDER | --probe
"""

import importlib.util
import json
import sys


def main(folder):
    if folder == "--probe":
        spec = importlib.util.find_spec("wandb")
        return 0 if spec and spec.origin else 1  # a folder ./wandb of earlier runs has no origin
    import wandb

    header = json.loads(sys.stdin.readline())
    settings = wandb.Settings(console="off")
    run = wandb.init(
        mode="offline",
        dir=folder,
        project="stagecraft",
        name=header["name"],
        config=header["config"],
        settings=settings,
    )
    for line in sys.stdin:
        point = json.loads(line)
        run.log(point["values"], step=point["step"])
    run.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""DeepSpeed among gpu.py's programs: the peers that torch_deepspeed.py is, and what of ours takes turns with
them."""
import sys

from gpu_table import KEEPS, ONE

# Peers by name: (arguments, label). A part after a colon, as in stage2:defaults, names other settings than
# the best.
PEERS = {
    **{f"stage{stage}": (["--stage", stage], f"DeepSpeed, ZeRO-{stage}") for stage in (1, 2, 3)},
    "offload": (["--stage", 2, "--offload"], "DeepSpeed, ZeRO-Offload"),
}
SETTINGS = {"": ("best", "blocks compiled"), "defaults": ("defaults", "its defaults")}
OFFLOAD = ("ours_exact", *KEEPS, "ours_early", "ours_delayed", ONE)  # the first is `ours`
LESSONS = {
    "ours_exact": ("05_offload", [], "Stagecraft, lesson 05 (offload)"),
    **{
        name: ("05_offload", [f"resident={units}"], f"Stagecraft, lesson 05, resident={units}")
        for name, units in KEEPS.items()
    },
    "ours_early": (
        "05_offload",
        ["update=early", "resident=1"],
        "Stagecraft, lesson 05, update=early, resident=1",
    ),
    "ours_delayed": ("05_offload", ["update=delayed"], "Stagecraft, lesson 05, update=delayed"),
}


def arguments(name):
    base, _, more = name.partition(":")
    if more not in SETTINGS:
        sys.exit(
            f"error: --peers: '{name}': DeepSpeed's settings are its best, or defaults\n  fix: --peers "
            f"{base},{base}:defaults"
        )
    return [*PEERS[base][0], "--settings", SETTINGS[more][0]]


def label(base, more):
    return f"{PEERS[base][1]}, {SETTINGS[more][1]}, bf16 parameters and gradients, fp32 master"

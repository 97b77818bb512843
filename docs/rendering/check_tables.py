"""docs/records/checks.md and CONTRIBUTING.md: what the checks cost (docs/results/cost.json)."""
from .registry import record, renders, table

COMMANDS = {"first": "lessons/01_data_parallel/run.sh", "run": "tests/run.sh", "ci": ".ci/run"}
# CPU minutes, and minutes on the clock, of cebaddd; of .ci/run only what its last four runs took is known, some on a busy machine.
BEFORE = {"first": ("6", "3.4"), "run": ("48", "24"), "ci": ("-", "57 to 87")}
BARS = {"first": 7, "run": 24, "ci": 55}


@renders
def cost_of_checks(page):
    rows = []
    for name, command in COMMANDS.items():
        found = record("cost")["commands"][name]
        rows.append([f"`{command}`", *BEFORE[name], BARS[name], f"{found['cpu_minutes']:.1f}", f"{found['minutes']:.1f}", found["commit"]])
    return table(["command", "CPU minutes before", "minutes before", "bar, CPU minutes", "CPU minutes", "minutes", "commit"], rows)


@renders
def stages_of_checks(page):
    """Seconds of each stage on the clock, two compilers or tests at once."""
    both = {name: record("cost")["commands"][name]["stages"] for name in ("run", "ci")}
    return table(["stage", "`tests/run.sh`, s", "`.ci/run`, s"], [[stage, both["run"].get(stage, "-"), seconds] for stage, seconds in both["ci"].items()])


@renders
def dearest_tests(page):
    return table(["test", "s"], [[f"`{one['test']}`", f"{one['seconds']:.0f}"] for one in record("cost")["dearest"]])

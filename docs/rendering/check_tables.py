"""docs/records/checks.md and CONTRIBUTING.md: what the checks cost (docs/results/cost.json, by
tests/setup/cost.sh)."""
from .registry import record, renders, table, table_of

# Each command with the bar set for it, in CPU minutes, on a machine where the first command took six minutes.
WHERE_THE_BAR_WAS_SET = 6
COMMANDS = {
    "first": ("lessons/01_data_parallel/run.sh", 7),
    "run": ("tests/run.sh", 24),
    "ci": (".ci/run", 55),
}


@renders
def cost_of_checks(page):
    before, now = (record("cost").get(kind, {}) for kind in ("before", "commands"))
    here = before["first"]["cpu_minutes"] / WHERE_THE_BAR_WAS_SET
    return table_of(
        [name for name in COMMANDS if name in now],
        {
            "command": lambda name: f"`{COMMANDS[name][0]}`",
            "before": lambda name: f"{before[name]['cpu_minutes']:.1f}" if name in before else "-",
            "now": lambda name: f"{now[name]['cpu_minutes']:.1f}",
            "bar here": lambda name: f"{COMMANDS[name][1] * here:.1f}",
            "minutes on the clock": lambda name: f"{now[name]['minutes']:.0f}",
            "commit": lambda name: now[name]["commit"],
        },
    )


@renders
def stages_of_checks(page):
    now = record("cost").get("commands", {})
    run, ci = (now.get(name, {}).get("stages", {}) for name in ("run", "ci"))
    return table(
        ["stage", "`tests/run.sh`, s", "`.ci/run`, s"],
        [[stage, run.get(stage, ""), seconds] for stage, seconds in ci.items()],
    )


@renders
def dearest_tests(page):
    return table_of(
        record("cost").get("dearest", []),
        {"test": lambda one: f"`{one['test']}`", "s": lambda one: f"{one['seconds']:.0f}"},
    )

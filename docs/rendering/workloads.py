"""Workloads' files, and which of them a run on record was made with."""
import hashlib
import json
import shlex

from .registry import ROOT, RenderError

FILES = {
    "tiny": "configs/tiny.json",
    "four_blocks": "tests/workloads/four_blocks.json",
}  # of the records of CPU runs


def file_of(name):
    return FILES.get(name, f"configs/{name}.json")


def workload(name):
    return json.loads((ROOT / file_of(name)).read_text())


def resolved(work, prefix=""):
    """(key, value) as a run resolves them (common/config/workload_table.h)."""
    for key, value in work.items():
        if isinstance(value, dict):
            yield from resolved(value, f"{prefix}{key}.")
        else:
            yield prefix + key, ("off", "on")[value] if isinstance(
                value, bool
            ) else f"{value:g}" if isinstance(value, float) else str(value)


def hash_of(work, settings=()):
    """What a run's record has as its workload's hash; settings of the strategy are no part of it."""
    values = dict(resolved(work))
    values.update(one.split("=", 1) for one in settings if one.split("=")[0] in values)
    return hashlib.sha256(
        "".join(f"{key}={value}\n" for key, value in sorted(values.items())).encode()
    ).hexdigest()


def hash_before(work, settings=()):
    """The same in a record of when evaluations were counted in micro-batches (common/config/other_names.h)."""
    data, micro = dict(work["data"]), work["batch"]["micro"]
    data["validation_batches"] = data.pop("validation_rows") // micro
    return hash_of({**work, "data": data}, settings)


def settings_in(command):
    """What --set and --steps say in a command."""
    words = shlex.split(command)
    return [
        value if flag == "--set" else f"steps={value}"
        for flag, value in zip(words, words[1:])
        if flag in ("--set", "--steps")
    ]


def named(workload_hash, settings):
    """Of FILES the one whose values have that hash with these settings."""
    for name in FILES:
        if workload_hash in (hash_of(workload(name), settings), hash_before(workload(name), settings)):
            return name
    raise RenderError(
        f"a run with the settings {' '.join(settings)}: its workload is none of {', '.join(FILES.values())}; make its record again"
    )


def in_todays_keys(command):
    """An evaluation of one micro-batch is one of as many rows."""
    settings = dict(one.split("=", 1) for one in settings_in(command))
    return command.replace(
        "data.validation_batches=1 ", f"data.validation_rows={settings.get('batch.micro')} "
    )


def workload_of(run):
    return named(run["workload_hash"], settings_in(run["command"]))


def command_of(command, name):
    """The command that repeats a run today: before tests/workloads/ was there, its file was the default."""
    if name == "tiny" or "--workload" in command:
        return command
    words = command.split(" ")
    at = 3 if words[1:2] == ["-n"] else 1
    return " ".join([*words[:at], "--workload", FILES[name], *words[at:]])


def shown(run):
    return command_of(run["command"], workload_of(run))

"""What must hold of every page: links lead somewhere, fenced blocks say what they are, commands can be found
and run; and of every record of GPUs: it names the sources that were measured. The course: the list of lessons
gives their order and the hours of each; their own pages agree."""
import ast
import dataclasses
import json
import posixpath
import re
import shlex

from . import collective_tables
from .combined import all_laid
from .plans import plan_of
from .registry import COURSE, RESULTS, ROOT, RenderError, record
from .version_tables import LATE, TWIN_OF

LANGUAGES = ("sh", "text", "json", "cpp", "diff", "python", "markdown", "csv")
FENCE = re.compile(r"^([ ]*)```(\S*)[ ]*\n(.*?)^\1```[ ]*$", re.S | re.M)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
CODE = re.compile(r"`[^`\n]*`")
MARK = re.compile(r"<!-- commands: (.*?) -->\s*$")
GPU_RECORDS = ("gpu_*.json", "comm_beside_products_*.json", "collectives_nvlink_*.json")
COMMIT = re.compile(r"[0-9a-f]{12}(-dirty)?")


def slug(heading):
    """GitHub's name of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))


def without_fences(text):
    return FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)


def headings_of(path):
    found = set()
    for match in re.finditer(r"^#+ +(.*?)\s*$", without_fences(path.read_text()), re.M):
        name, count = slug(match[1]), 0
        while (f"{name}-{count}" if count else name) in found:
            count += 1
        found.add(f"{name}-{count}" if count else name)
    return found


def broken_target(page, target):
    """What is wrong with a link inside the repository; None if it leads somewhere."""
    name, _, fragment = target.partition("#")
    path = (ROOT / page).parent / name if name else ROOT / page
    if not path.exists():
        return "there is no such file"
    if not path.resolve().is_relative_to(ROOT):
        return "it leads out of the repository"
    if not fragment or path.suffix == ".html":  # there it is what the page shows, not a place in it
        return None
    if path.suffix == ".md":
        return None if fragment in headings_of(path) else f"that page has no heading '{fragment}'"
    line = re.fullmatch(r"L(\d+)", fragment)
    if not line or not 1 <= int(line[1]) <= len(path.read_text().splitlines()):
        return f"there is no line '{fragment}'"
    return None


def broken_links(page, text):
    prose = CODE.sub(lambda m: "x" * len(m[0]), without_fences(text))
    for match in LINK.finditer(prose):
        target = match[1]
        if re.match(r"[a-z]+:", target):
            continue
        wrong = broken_target(page, target)
        if wrong:
            yield f"{page}:{prose.count(chr(10), 0, match.start()) + 1}: the link to {target}: {wrong}"


def fences(text):
    """(first line, language, content, where it begins) of each fenced block."""
    for match in FENCE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[2], match[3], match.start()


def nameless_fences(page, text):
    """A fence without a language might be a command that nobody runs."""
    for line, language, *_ in fences(text):
        if language not in LANGUAGES:
            yield (
                f"{page}:{line}: a fenced block is '{language}'; it is one of {', '.join(LANGUAGES)} "
                "(commands: sh)"
            )


def broken_python(page, text):
    """A fence of Python that does not parse."""
    for line, language, content, _ in fences(text):
        if language == "python":
            try:
                ast.parse(content)
            except SyntaxError as error:
                yield f"{page}:{line + error.lineno}: {error.msg}"


@dataclasses.dataclass
class Command:
    """A line of a fenced block `sh`."""

    page: str
    line: int
    words: list
    exit_code: int = 0
    gpu: bool = False
    not_run: str = ""  # the reason

    @property
    def place(self):
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"


def mark_above(page, text, start):
    """`<!-- commands: gpu | exit N | not run, REASON -->` on the line above a fence."""
    above = text[:start].rstrip("\n").rsplit("\n", 1)[-1]
    match = MARK.match(above.strip())
    if not match:
        return {}
    said = match[1]
    if said == "gpu":
        return {"gpu": True}
    if code := re.fullmatch(r"exit (\d+)", said):
        return {"exit_code": int(code[1])}
    if reason := re.fullmatch(r"not run, (.+)", said):
        return {"not_run": reason[1]}
    raise RenderError(f"{page}: '<!-- commands: {said} -->' is none of: gpu | exit N | not run, REASON")


def commands_of(page, text):
    """Every command of a page's `sh` blocks; a backslash continues a line, a comment behind one is left
    out."""
    for first, language, content, start in fences(text):
        if language == "sh":
            marks, pending = mark_above(page, text, start), ""
            for line, words in enumerate(content.splitlines(), start=first + 1):
                pending += words.rstrip()
                if pending.endswith("\\"):
                    pending = pending[:-1]
                else:
                    if words := shlex.split(pending, comments=True):
                        yield Command(page, line, words, **marks)
                    pending = ""


def measured_parts(found):
    """(name, what names its commit) of a record: every round of a run of peers, every run of runs with equal
    bits or with a profile, or the record itself."""
    if "rows" in found:
        return [
            (f"{key}, round {i + 1}", one)
            for key, row in found["rows"].items()
            for i, one in enumerate(row["rounds"])
        ]
    if found and all(isinstance(part, dict) and "runs" in part for part in found.values()):
        return [(f"{key}, {name}", run) for key, part in found.items() for name, run in part["runs"].items()]
    if isinstance(found.get("runs"), list) and all("commit" in run for run in found["runs"]):
        return [(f"run {i + 1}", run) for i, run in enumerate(found["runs"])]
    return [("", found)]


def gpu_records():
    """(name, record) of all that was measured on GPUs."""
    return [
        (path.stem, json.loads(path.read_text()))
        for path in sorted(path for pattern in GPU_RECORDS for path in RESULTS.glob(pattern))
    ]


def records_without_commit(records):
    for name, found in records:
        nameless = [
            part for part, one in measured_parts(found) if not COMMIT.fullmatch(str(one.get("commit")))
        ]
        yield from (
            f"docs/results/{name}.json: {part or 'it'} names no commit; fix: measure it again, with "
            "--commit where there is no git"
            for part in nameless
        )


def broken_claims():
    """Sentences of pages that a record, made again, no longer bears out."""

    def waits(bucket, overlap):
        return [
            turn["wait_share"]
            for run in record("lesson_01_variants")["variants"]
            if (run["bucket"], run["overlap"]) == (bucket, overlap)
            for turn in run["rounds"]
        ]

    orders = [run["loss"][-1] for run in record("lesson_01_order")["ranks"].values()]
    rates = {
        (run["rows"], run["factor"], run["warmup_steps"]): run["validation_loss"]
        for run in record("lesson_01_lr")["runs"]
    }
    padded = {
        run["trained"]: run["evaluated"]["pad_masked"]
        for run in record("padding_cpu")["runs"]
        if run["sequence"] == 1024
    }
    calls = {}  # an all-reduce's over a half's
    for name, said in collective_tables.records():
        call = {
            one["kind"]: collective_tables.call_seconds(
                collective_tables.KINDS[one["kind"]], said["ranks"], one["fit"]
            )
            for one in said["operations"]
        }
        calls[name.removeprefix("collectives_")] = (
            2 * call["all_reduce"] / (call["reduce_scatter"] + call["all_gather"])
        )
    tensor, zero3 = (
        {rows * share: plan_of(lesson, "gpt2_355m", 2, f"batch.micro={rows}").sent for rows in several}
        for lesson, share, several in (("10_tensor_parallel", 1, (2, 4)), ("04_zero3", 2, (1, 2)))
    )
    meshes = {run["name"]: run for run in record("meshes")["runs"]}
    turns = {
        name: [one["tokens_per_second"] for one in run["rounds"]]
        for name, run in record("lesson_10_turns")["runs"].items()
    }
    laid = {one.mesh: one for one in all_laid()}
    alone, shared = (
        [one for one in laid.values() if one.mesh.endswith("x1") is flat] for flat in (True, False)
    )
    doubled = [
        max(one.held for one in laid.values() if one.mesh.endswith(f"x{tensor}")) for tensor in (1, 2, 4, 8)
    ]
    large, small = (
        {
            (row["lesson"], *row["settings"]): row
            for row in record("choosing")["plans"][plan]["rows"]
            if "micro" in row
        }
        for plan in ("7b x8", "7b x8 24GB")
    )
    sharded, late = (
        large["07_pipeline", "replicas=2", "states=sharded"],
        large["05_offload", "parameters=sharded", "update=delayed"],
    )
    high, low = (
        {rule: run["validation_loss"] for rule, run in record("lesson_08_losses")["rates"][rate].items()}
        for rate in ("4e-3", "1e-3")
    )
    of_two, of_four = (
        [
            row
            for row in record("choosing")["check"]["rows"]
            if row["gpus"] == gpus and abs(row["error"]) > 0.1
        ]
        for gpus in (2, 4)
    )
    sent = {
        row["lesson"][:2]: row["moved"]["measured"]["sent to other ranks"]
        for row in record("side_by_side")["rows"]
    }
    of_seeds = [record("lesson_08_losses")["rates"]["1e-3"], *record("lesson_08_seeds")["seeds"].values()]
    above = {
        rule: [runs[rule]["validation_loss"] - runs[twin]["validation_loss"] for runs in of_seeds]
        for rule, twin in TWIN_OF.items()
    }
    rises = [
        max(
            after - before
            for before, after in zip(
                runs["vertical_sync"]["loss"][LATE:], runs["vertical_sync"]["loss"][LATE + 1 :]
            )
        )
        for runs in of_seeds
    ]
    of_bits = record("gpu_bits")["world 2"]["groups"]["all"]
    on_gpus = record("gpu_tensor")["rows"]
    lanes_over_none = {
        key: row["ratios"]["ours_lanes_over_one_device"]["median"]
        / row["ratios"]["ours_over_one_device"]["median"]
        for key, row in on_gpus.items()
        if "ours_lanes" in row["programs"]
    }

    def share_waited(world, names):
        """The least and the most of all models, in percent."""
        shares = [
            row["programs"][name]["wait_share"]
            for row in on_gpus.values()
            if row["world"] == world
            for name in names
            if name in row["programs"]
        ]
        return round(100 * min(shares)), round(100 * max(shares))

    claims = {
        "side_by_side.md: lesson 10 sends most, and 03 to 06 and 09 more than 01 and 02": max(
            sent, key=sent.get
        )
        == "10"
        and min(sent[number] for number in ("03", "04", "05", "06", "09")) > max(sent["01"], sent["02"]),
        "03_choosing.ipynb: a pipeline with sharded states holds about half of delayed sharded offload, at "
        "more than three quarters of its speed": sharded["device"] < 0.55 * late["device"]
        and sharded["tokens_per_second"] > 0.75 * late["tokens_per_second"],
        "03_choosing.ipynb: on cards of 24 GB neither ZeRO-1 nor ZeRO-2 fits": not any(
            row["fits"] for (lesson, *_), row in small.items() if lesson[:2] in ("01", "02", "03")
        ),
        "02_pipelines.ipynb: every rule without a flush ends above 1F1B at the high rate, and stash below "
        "it at the low one": min(high[rule] for rule in ("stash", "vertical_sync", "two_buffers"))
        > high["1f1b"]
        and low["stash"] < low["1f1b"],
        "08_weight_versions: with every seed vertical_sync costs twice what stash does, two_buffers more "
        "than stash, and stash with an update per step at most 0.02": all(
            2 * b < c and b < d and e < 0.025
            for b, c, d, e in zip(
                *(above[rule] for rule in ("stash", "vertical_sync", "two_buffers", "stash_12"))
            )
        ),
        "08_weight_versions: one seed's none is clearly worse than stash, the others' is not": [
            b - a > 0.05 for a, b in zip(above["stash"], above["none"])
        ]
        == [False, True, False],
        "08_weight_versions: the spike of vertical_sync is one seed's": [rise > 1 for rise in rises]
        == [True, False, False],
        "choosing.md: of two GPUs only quoted runs are more than a tenth off, of 10 ms or of lesson 05": all(
            row["record"] == "quoted" and (row["seconds"] < 0.015 or row["lesson"] == "05_offload")
            for row in of_two
        ),
        "choosing.md: of four GPUs only lanes=2 of lesson 10 at 355M is more than a tenth off": [
            (row["run"], row["lesson"], row["settings"]) for row in of_four
        ]
        == [("tensor_355m x4", "10_tensor_parallel", ["lanes=2"])],
        "zero3.md: on two GPUs lessons 01 to 04 end in the same bits": of_bits["equal_weights"]
        and of_bits["equal_losses"]
        and len(of_bits["runs"]) == 4,
        "data_parallel.md: with a bucket per tensor every round waits less with overlap": max(
            waits("tensor", "on")
        )
        < min(waits("tensor", "off")),
        "data_parallel.md: orders of summation end less than 1e-8 of the loss apart": max(orders)
        - min(orders)
        < 1e-8 * min(orders),
        "data_parallel.md: the linear rule helps, and so does warm-up": rates[48, 4, 10]
        < rates[48, 4, 0]
        < rates[48, 1, 10]
        and rates[48, 16, 40] < rates[48, 16, 10],
        "what_the_numbers_hide.md: counting padding makes no better model of text": padded["pad_unmasked"]
        >= padded["pack"],
        "10_tensor_parallel: of GPT-2 355M, 3.6 d = 3,686, it sends less than ZeRO-3 with 2 rows of 1024 "
        "tokens and more with 4": tensor[2] < zero3[2]
        and tensor[4] > zero3[4],
        "tensor.md: on two GPUs a step waits 4 to 7 % with two lanes and 17 to 24 % without, on four 24 to "
        "36 % and 35 to 48 %": [
            share_waited(world, names)
            for world in (2, 4)
            for names in (("ours_lanes", "ours_lanes_kept"), ("ours", "ours_whole", "ours_kept"))
        ]
        == [(4, 7), (17, 24), (24, 36), (35, 48)],
        "tensor.md: two lanes without gathered=kept are slower than none on four GPUs alone": all(
            (gain < 1) == (on_gpus[key]["world"] == 4) for key, gain in lanes_over_none.items()
        ),
        "choosing.md and 10_tensor_parallel: on GPUs every form of lesson 10 is slower than lesson 04": all(
            row["ratios"]["zero3_over_one_device"]["median"]
            > max(
                ratio["median"]
                for name, ratio in row["ratios"].items()
                if name.startswith("ours") and name.endswith("_over_one_device")
            )
            for row in on_gpus.values()
        ),
        "10_tensor_parallel: in every round lesson 01 trains more tokens than any form of lesson 10": all(
            one > max(others)
            for one, *others in zip(*(turns[name] for name in ("data_parallel", "split", "whole", "lanes")))
        ),
        "choosing.md: every published mesh fits as it was run, and on 80 GB with nothing recomputed": all(
            run["plans"][form]["gb"]["total"] < run["gpu_gb"]
            for run in meshes.values()
            for form in ("as_run", "kept")
            if form == "as_run" or run["gpu_gb"] == 80
        ),
        "choosing.md: tensor groups of the largest models fill a node": all(
            meshes[f"Megatron-LM {size}"]["mesh"][2] == 8 for size in ("530B", "1T")
        ),
        "11_combined: tensor ranks send more than twenty times as much as any layout without them": min(
            one.most for one in shared
        )
        > 20 * max(one.most for one in alone),
        "11_combined: each doubling of tensor ranks takes a quarter or more of the fullest GPU": all(
            after <= 0.75 * before for before, after in zip(doubled, doubled[1:])
        ),
        "11_combined: stages of data ranks send a third less than eight stages or replicas": max(
            laid[mesh].most for mesh in ("4x2x1", "2x4x1")
        )
        < 0.67 * min(laid[mesh].most for mesh in ("8x1x1", "1x8x1")),
        "11_combined: stages shrink no activations, so layouts without tensor ranks hold within a fifth of "
        "each other": max(one.held for one in alone) < 1.2 * min(one.held for one in alone),
        "measuring.md: two deterministic runs on one GPU end in the same bits, two fused ones do not": {
            name: group["equal_weights"] and group["equal_losses"]
            for name, group in record("gpu_bits")["world 1"]["groups"].items()
        }
        == {"deterministic": True, "fused": False},
        "collectives.md: by NCCL on two GPUs an all-reduce's call takes as long as a half's, by copy "
        "engines twice as long, between CPU ranks less than that": calls["nvlink_2"]
        < 1.1
        < calls["cpu"]
        < min(calls["copies_2"], calls["copies_4"])
        and all(abs(calls[name] - 2) < 0.2 for name in ("copies_2", "copies_4")),
    }
    return [f"{claim}: its record says otherwise" for claim, holds in claims.items() if not holds]


HOURS = {"an hour": 1.0, "an hour and a half": 1.5, "two hours": 2.0, "three hours": 3.0, "four hours": 4.0}
ALLOWED = re.compile(r"\bAllow ((?:an|two|three|four) hours?(?: and a half)?)\b")
NEXT = re.compile(r"^## Next\n(.*?)(?=^## |\Z)", re.M | re.S)


def problems_of_course(pages):
    """pages: text by name. Of each lesson: hours that are not the list's, a Next that does not lead to what
    follows there."""
    rows = [(one["page"], one["hours"]) for one in COURSE.values()]
    for (page, hours), following in zip(rows, [*(name for name, _ in rows[1:]), None]):
        if not page.startswith("lessons/"):
            continue
        text = pages[page]
        allowed = ALLOWED.search(text)
        if not allowed or HOURS[allowed[1]] != hours:
            yield f"{page}: {'it allows ' + allowed[1] if allowed else 'it says no hours'}, README.md {hours}"
        then = NEXT.search(text)
        if not then:
            yield f"{page}: there is no '## Next'"
        elif following and f"({posixpath.relpath(following, posixpath.dirname(page))}" not in then[1]:
            yield f"{page}: its '## Next' never links {following}, the next row of README.md"

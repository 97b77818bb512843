"""Planted faults, tests/faults/*.patch: in READMEs they are the solutions of the hunts of lessons/hunt.sh."""
import sys

from .registry import ROOT, RenderError, renders, table_of

sys.path.insert(0, str(ROOT / "tests/mutate"))
import hunt  # noqa: E402  what a patch says, and its number


def unlisted(page, text):
    """A lesson's README names every fault of its number."""
    lesson = page.path.split("/")[1].split("_")[0]
    return [one.path.name for one in hunt.all_hunts().get(lesson, []) if one.path.name not in text]


@renders
def faults(page, lesson):
    """The hunts of a lesson, and folded what each has planted."""
    found = hunt.all_hunts().get(lesson)
    if not found:
        raise RenderError(f"tests/faults has no patch of {lesson}")
    table = table_of(
        found,
        {
            "hunt": lambda one: f"[{one.number}]({page.link(one.patch)})",
            "what is wrong": lambda one: one.what.replace("|", "\\|"),
            "the test that finds it": lambda one: f"`{one.test}`",
        },
        left=3,
    )
    return f"<details><summary>Solutions of the hunts</summary>\n\n{table}\n</details>"

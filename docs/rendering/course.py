"""The course: the README's table gives the order of the lessons and the hours of each; their own pages agree."""
import posixpath
import re

ROW = re.compile(r"^\| \d+ \| \[[^\]]+\]\(([^)]+)\) \| ([\d.]+) \|", re.M)
HOURS = {"an hour": 1.0, "an hour and a half": 1.5, "two hours": 2.0, "three hours": 3.0, "four hours": 4.0}
ALLOWED = re.compile(r"\bAllow ((?:an|two|three|four) hours?(?: and a half)?)\b")
NEXT = re.compile(r"^## Next\n(.*?)(?=^## |\Z)", re.M | re.S)


def problems_of(pages):
    """pages: text by name. Of each lesson: hours that are not the table's, a Next that does not lead to the next row."""
    rows = ROW.findall(pages["README.md"])
    for (page, hours), following in zip(rows, [*(name for name, _ in rows[1:]), None]):
        if not page.startswith("lessons/"):
            continue
        text = pages[page]
        allowed = ALLOWED.search(text)
        if not allowed or HOURS[allowed[1]] != float(hours):
            yield f"{page}: {'it allows ' + allowed[1] if allowed else 'it says no hours'}, README.md {hours}"
        then = NEXT.search(text)
        if not then:
            yield f"{page}: there is no '## Next'"
        elif following and f"({posixpath.relpath(following, posixpath.dirname(page))}" not in then[1]:
            yield f"{page}: its '## Next' never links {following}, the next row of README.md"

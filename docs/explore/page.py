"""Puts docs/explore/index.html together: the template, the engine, and what both were made of. Or checks that
it is of today's sources.

usage: page.py BUILD_FOLDER | page.py --check
exit:  1 it is stale, larger than it may be, or names a path of the machine that built it
"""
import base64
import gzip
import hashlib
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT, PAGE, SOURCES = HERE.parent.parent, HERE / "index.html", HERE / "sources.txt"
sys.path.insert(0, str(ROOT / "tests/setup"))
import tiers  # noqa: E402  sums that a comment does not change

MOST = 4_000_000
FIX = "docs/explore/build.sh"


def part(page, name):
    return re.search(rf'<script id="{name}"[^>]*>(.*?)</script>', page, re.S).group(1)


RUN_PAGE = "common/records/page/template.html"
RUN_PAGE_TEXT = (ROOT / RUN_PAGE).read_text()
# The colours and names of a run's page: a thing has one of each everywhere.
COLOURS = "\n".join(re.findall(r"^  --[a-z]+: light-dark\(.*\);$", RUN_PAGE_TEXT, re.M))
WORDS = part(RUN_PAGE_TEXT, "words")


def built_from(names):
    """One hash over names and contents: of a run's page what is taken; a file that is gone counts as
    empty."""
    sums = (COLOURS + WORDS if name == RUN_PAGE else tiers.digest(name) for name in names)
    return hashlib.sha256("".join(f"{pair}\n" for pair in zip(names, sums)).encode()).hexdigest()


def allowed(page):
    """The page with a policy that lets its own scripts run, and no other; the code has a type, and is
    data."""
    hashes = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in re.findall(r'<script(?: id="engine")?>(.*?)</script>', page, re.S)
    )
    own = " ".join(f"'sha256-{one}'" for one in hashes)
    return re.sub("script-src .*? 'wasm", f"script-src {own} 'wasm", page, count=1)


def make(build):
    script = build / "engine.js"
    if script.exists():
        SOURCES.write_text((build / "sources.txt").read_text())
        text = script.read_text()
        code = base64.b64encode(gzip.compress((build / "small.wasm").read_bytes(), 9, mtime=0)).decode()
    else:
        text, code = part(PAGE.read_text(), "engine"), part(PAGE.read_text(), "code")
    if "</script" in text:
        sys.exit("error: the engine holds </script")
    page, words = (HERE / "template.html").read_text(), json.loads(WORDS)
    for slot, what in (
        ("COLOURS", COLOURS),
        ("PURPOSES", json.dumps(words["tables"]["COLOUR"])),
        ("HELD", json.dumps(words["held"])),
        ("LESSONS", json.dumps(sorted(file.parent.name for file in ROOT.glob("lessons/[0-9]*/*_plan.cpp")))),
        ("ENGINE", text),
        ("CODE", code),
        ("SOURCES", built_from(SOURCES.read_text().split())),
    ):
        page = page.replace("{{" + slot + "}}", what)
    page = allowed(page)
    for path in {str(ROOT), str(build.resolve()), str(pathlib.Path.home())}:
        if path != "/" and path in page:
            sys.exit(f"error: the page names {path}")
    if len(page.encode()) > MOST:
        sys.exit(f"error: the page has {len(page.encode())} bytes, more than {MOST}")
    PAGE.write_text(page)
    print(f"written: docs/explore/index.html, {len(page.encode())} bytes")


def check():
    found = re.search(r'<meta name="built-from" content="([0-9a-f]*)">', PAGE.read_text())
    if found is None or found.group(1) != built_from(SOURCES.read_text().split()):
        sys.exit(f"stale: docs/explore/index.html is not of today's sources; fix: {FIX}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        check()
    else:
        make(pathlib.Path(sys.argv[1]))

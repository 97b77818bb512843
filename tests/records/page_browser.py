"""A page of a run in a real browser, where there is one: it checks itself under #selftest."""
import base64
import hashlib
import pathlib
import re
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "explore"))
from browser import CHROMIUM, Browser, run_tests  # noqa: E402, F401: what users of this need, too

# JavaScript that collects the text of all elements with an id.
TEXTS = "Object.fromEntries([...document.querySelectorAll('[id]')].map((e) => [e.id, e.textContent]))"


def allowed(text):
    """The page with a policy that lets its own scripts run, and no other."""
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in re.findall("<script>(.*?)</script>", text, re.DOTALL)
    ]
    return re.sub(
        r"script-src ('sha256-[^']*' ?)+",
        "script-src " + " ".join(f"'sha256-{one}'" for one in hashes),
        text,
        count=1,
    )


def browse(text, width=1280, more=(), until="selftest"):
    """{id: text} of the page, which may be a changed one, after it has checked itself, or has an element of
    this id."""
    with Browser(*more) as browser, tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "page.html"
        file.write_text(allowed(text), encoding="utf-8")
        there = f"document.readyState === 'complete' && !!document.getElementById('{until}')"
        browser.opened(f"file://{file}#selftest", width, there, seconds=60)
        return browser.value(TEXTS)

"""A page of a run in a real browser, where there is one: it checks itself under #selftest."""
import base64
import hashlib
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Reader(html.parser.HTMLParser):
    """The text of elements by their id."""

    def __init__(self, dom):
        super().__init__()
        self.texts, self.open = {}, []
        self.feed(dom)

    def handle_starttag(self, tag, attributes):
        self.open.append((tag, dict(attributes).get("id")))

    def handle_endtag(self, tag):
        if tag in [t for t, _ in self.open]:
            while self.open.pop()[0] != tag:
                pass

    def handle_data(self, text):
        for _, name in self.open:
            if name:
                self.texts[name] = self.texts.get(name, "") + text


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


def browse(text, width=1280, more=()):
    """{id: text} of the page, which may be a changed one, after it has checked itself."""
    text = allowed(text)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "page.html"
        file.write_text(text, encoding="utf-8")
        flags = [
            "--headless",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            f"--user-data-dir={folder}/profile",
            f"--window-size={width},1600",
        ]
        flags += [*more, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        done = subprocess.run(
            [CHROMIUM, *flags, "--dump-dom", f"file://{file}#selftest"],
            capture_output=True,
            text=True,
            timeout=240,
        )
        return Reader(done.stdout).texts

"""Chromium by its own protocol over a pipe: a page at any width, what it asked for, and what it says once it
is done."""
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


def run_tests(arguments=()):
    """Runs the tests of the module that was started; exit 77 without a browser."""
    if CHROMIUM is None:
        print("skipped: there is no chromium (common/setup/setup.sh --dev)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *arguments])


class Browser:
    def __init__(self, *flags):
        self.flags = flags

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()

        def pipes():  # the protocol's: 3 is read, 4 is written
            ours = os.dup(read_there), os.dup(write_there)
            os.dup2(ours[0], 3), os.dup2(ours[1], 4)

        flags = [
            "--headless",
            "--disable-gpu",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--user-data-dir={self.folder.name}/profile",
            *self.flags,
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        self.process = subprocess.Popen(
            [CHROMIUM, *flags],
            preexec_fn=pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there), os.close(write_there)
        self.read, self.write, self.rest, self.number, self.events = read_here, write_here, b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.read), os.close(self.write)
        self.folder.cleanup()

    def message(self, until):
        while b"\0" not in self.rest:
            if not select.select([self.read], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.read, 1 << 16)
            if not more:
                raise EOFError("the browser has ended")
            self.rest += more
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, seconds=60, **parameters):
        self.number += 1
        asked = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            asked["sessionId"] = self.session
        os.write(self.write, json.dumps(asked).encode() + b"\0")
        until = time.monotonic() + seconds
        while True:
            got = self.message(until)
            if got.get("id") != self.number:
                self.events.append(got)
            elif "error" in got:
                raise RuntimeError(f"{method}: {got['error']}")
            else:
                return got["result"]

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def pressed(self, key):
        """One key, down and up, and what the page then draws."""
        code = {"Tab": 9, "Enter": 13, "End": 35, "ArrowLeft": 37, "ArrowRight": 39}.get(key, 0)
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )
        self.call(
            "Runtime.evaluate",
            expression="new Promise(done => requestAnimationFrame(() => setTimeout(done)))",
            awaitPromise=True,
        )

    def opened(self, address, width, done, seconds=120):
        """The value of the expression `done` once it is there; of this page's events, the requests and
        errors."""
        self.events = []
        self.call("Page.navigate", url="about:blank")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        self.events = []
        self.call("Page.navigate", url=address)
        until = time.monotonic() + seconds
        while not (found := self.value(done)):
            if time.monotonic() > until:
                raise TimeoutError(f"{done} does not come")
            time.sleep(0.1)
        return found

    def requests(self):
        return [
            e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"
        ]

    def errors(self):
        thrown = [
            e["params"]["exceptionDetails"] for e in self.events if e["method"] == "Runtime.exceptionThrown"
        ]
        return thrown + [
            e["params"]["entry"]["text"]
            for e in self.events
            if e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error"
        ]

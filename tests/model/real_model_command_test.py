"""lessons/real_model.sh against a hub on 127.0.0.1 that has a tiny model and a made text: what it says,
fetches, and does without a network.

  python3 tests/model/real_model_command_test.py build/cpu/bin FOLDER PYARROW
          FOLDER: an empty one; PYARROW: a Python that has it
"""
import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

from real_models_test import HERE, ROOT, environment, playground, write_texts, write_weights

COMMIT = "0123456789" * 4
MODEL, TEXT = "openai-community/gpt2", "Salesforce/wikitext"
SPLITS = {"train": "train", "valid": "validation", "test": "test"}
CHUNK = 10 << 20  # what huggingface_hub writes at once: less is lost with an interruption
FLAGS = f"{HERE} --set optim.lr=0.01 --set optim.warmup_steps=1 --steps 4"


class Hub(http.server.ThreadingHTTPServer):
    """files: {"/repository/file": bytes}. Closes the connection after `most` bytes of a file, and is gone
    from then on."""

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files, self.most, self.gone, self.asked, self.sent = files, None, False, [], {}

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.server, self.path.partition("?")[0].replace("/datasets/Sales", "/Sales")
        hub.asked.append((self.command, path, self.headers.get("Range")))
        if hub.gone:
            self.close_connection = True
        elif path.startswith("/api/"):
            self.answer(json.dumps(self.info(path.split("/", 3)[3])).encode())
        else:
            repository, file = path.split(f"/resolve/{COMMIT}/")
            text = hub.files[f"{repository}/{file}"]
            tag = (
                hashlib.sha256(text).hexdigest()
                if file.endswith((".parquet", ".safetensors"))
                else f"{len(file):040}"
            )  # as of LFS
            self.answer(hub.sent.get(file, text), {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT})

    def info(self, name):
        own = {path: text for path, text in self.server.files.items() if path.startswith(f"/{name}/")}
        return {
            "id": name,
            "sha": COMMIT,
            "cardData": {"license": "mit" if name == MODEL else ["cc-by-sa-3.0", "gfdl"]},
            "siblings": [
                {"rfilename": path[len(name) + 2 :], "size": len(text)} for path, text in own.items()
            ],
        }

    def answer(self, text, more=()):
        begin = int(re.match(r"bytes=(\d+)-", self.headers.get("Range") or "bytes=0-")[1])
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(text) - 1}/{len(text)}")
        for name, value in {"Content-Length": len(text) - begin, **dict(more)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "HEAD":
            return
        most = self.server.most
        if most is not None and len(text) > most:
            self.wfile.write(text[begin:most])
            self.server.gone = self.close_connection = True
        else:
            self.wfile.write(text[begin:])


def made_files(folder, pyarrow):
    """What the hub has: the files' names are the real ones."""
    write_weights(folder / "model.safetensors", more={"score.weight": (4 << 20,)})
    write_texts(folder)
    for path in folder.glob("*.raw"):
        path.write_text(path.read_text().replace("\n\n", "\n \n"))  # as WikiText's empty lines are
    files = {f"/{MODEL}/model.safetensors": (folder / "model.safetensors").read_bytes()}
    files |= {f"/{MODEL}/{name}": name.encode() for name in ("vocab.json", "merges.txt")}
    files[f"/{MODEL}/config.json"] = b'{"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32}'
    # The parquet file has rows like the real files': each line with its end, and "" for an empty line.
    program = (
        "import pyarrow, pyarrow.parquet, sys; lines = open(sys.argv[1]).read().splitlines(keepends=True); "
        "pyarrow.parquet.write_table(pyarrow.table({'text': [line if line.strip() else '' for line in "
        "lines]}), sys.argv[2])"
    )
    for ours, theirs in SPLITS.items():
        subprocess.run(
            [pyarrow, "-c", program, folder / f"wiki.{ours}.raw", folder / "one.parquet"], check=True
        )
        files[f"/{TEXT}/wikitext-2-raw-v1/{theirs}-00000-of-00001.parquet"] = (
            folder / "one.parquet"
        ).read_bytes()
    return files


class Place:
    """A copy of the repository that has fetched nothing."""

    def __init__(self, folder, programs):
        self.root, self.cache = playground(folder / "repository", programs), folder / "cache"
        (self.root / "common/data").symlink_to(ROOT / "common/data")
        (self.root / ".deps").symlink_to(ROOT / ".deps")

    def ran(self, hub, flags, code=0, first_on_path=None):
        endpoint = (
            f"http://127.0.0.1:{hub}" if isinstance(hub, int) else f"http://127.0.0.1:{hub.server_port}"
        )
        env = {
            **environment(),
            "HF_ENDPOINT": endpoint,
            "STAGECRAFT_CACHE": str(self.cache),
            "HF_HOME": str(self.cache / "hub"),
        }
        if first_on_path:
            env["PATH"] = f"{first_on_path}:{env['PATH']}"
        done = subprocess.run(
            f"lessons/real_model.sh 124m {flags}",
            shell=True,
            cwd=self.root,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (
            f"{flags}: exit {done.returncode}, {code} was "
            f"expected\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
        return done.stdout, done.stderr


def check_without_network(place, files):
    """One message: a reason, and each file with its address and its place."""
    _, said = place.ran(1, f"--fetch-only {HERE}", code=69)
    assert said.startswith("error: http://127.0.0.1:1: ") and said.count("error:") == 1, said
    assert "Traceback" not in said, said
    for path in files:
        *repository, file = path.split("/")[1:]
        assert re.search(
            rf"^    http://127.0.0.1:1/\S+/resolve/main/\S*{re.escape(file)} -> "
            rf"{re.escape(str(place.cache))}\S*/{re.escape(file)}$",
            said,
            re.M,
        ), said


def check_without_the_package(folder, programs):
    """If neither .deps nor python3 has the package and it cannot be installed, the message is always the
    same."""
    place, python = Place(folder, programs), folder / "python3"
    (place.root / ".deps").unlink()
    python.write_text(
        f'#!/bin/sh\nexec {shutil.which("python3")} -S "$@"\n'
    )  # -S: without any package, pip included
    python.chmod(0o755)
    _, said = place.ran(1, f"--fetch-only {HERE}", code=69, first_on_path=folder)
    assert (
        said.startswith("error: huggingface_hub: it could not be installed (pip install huggingface_hub: ")
        and said.count("\nerror:") == 0
    ), said
    assert said.count("/resolve/main/") == 7, said


def check_interruption(place, hub):
    hub.most = 3 * CHUNK // 2
    out, said = place.ran(hub, f"--fetch-only {HERE}", code=69)
    assert re.search(
        rf"^{MODEL}: 23\.\d MB to fetch into \S+; licence: mit \(its card: http://\S+/{MODEL}\)$", out, re.M
    ), out
    assert re.search(rf"^{TEXT}: 0\.0 MB to fetch into \S+; licence: cc-by-sa-3.0, gfdl ", out, re.M), out
    assert (
        "the same command goes on where this one was interrupted" in said and "model.safetensors -> " in said
    ), said
    assert "config.json" not in said.partition("error:")[2], f"it is there\n{said}"

    hub.most, hub.gone, hub.asked = None, False, []
    place.ran(hub, f"--fetch-only {HERE}")
    fetched = [
        (path.rpartition("/")[2], begin)
        for method, path, begin in hub.asked
        if method == "GET" and "/resolve/" in path
    ]
    assert fetched[0] == ("model.safetensors", f"bytes={CHUNK}-"), fetched
    assert len(fetched) == 4 and all(name.endswith(".parquet") for name, _ in fetched[1:]), fetched


def check_whole(place, files, texts):
    assert (place.cache / "real_model/124m/model.safetensors").read_bytes() == files[
        f"/{MODEL}/model.safetensors"
    ]
    for split in SPLITS:
        found = (place.cache / f"real_model/wikitext/wiki.{split}.raw").read_text()
        assert found == (texts / f"wiki.{split}.raw").read_text(), found[:200]


def check_damaged(place, hub, texts):
    """A file of the cache in which a bit turned is fetched again; without a network it is one of those to
    bring."""
    text = place.cache / "real_model/wikitext"
    parquet = text / "wikitext-2-raw-v1/test-00000-of-00001.parquet"
    sound = parquet.read_bytes()

    def damaged():
        for made in (text / "wiki.test.raw", text / "wiki_test.bin", text / "wiki_test.bin.json"):
            made.unlink(missing_ok=True)
        parquet.write_bytes(sound[:40] + bytes([sound[40] ^ 1]) + sound[41:])
        hub.asked = []

    damaged()
    _, said = place.ran(1, f"--fetch-only {HERE}", code=69)
    assert said.count("/resolve/main/") == 1 and f" -> {parquet}" in said, said
    hub.sent["wikitext-2-raw-v1/test-00000-of-00001.parquet"] = b"?" * len(sound)
    _, said = place.ran(hub, f"--fetch-only {HERE}", code=69)
    assert said.count("test-00000-of-00001.parquet came with another SHA-256 than the hub names") == 1, said
    hub.sent, hub.asked = {}, []
    out, _ = place.ran(hub, f"--fetch-only {HERE}")
    assert f"{parquet}: is not what the hub has, and is fetched again" in out, out
    assert (
        len([path for method, path, _ in hub.asked if method == "GET" and "/resolve/" in path]) == 1
    ), hub.asked
    assert (text / "wiki.test.raw").read_text() == (texts / "wiki.test.raw").read_text()

    damaged()  # and one that was brought, whose sum nobody named
    shutil.rmtree(text / ".cache")
    parquet.write_bytes(sound[: len(sound) // 2])
    _, said = place.ran(1, f"--fetch-only {HERE}", code=65)
    assert (
        said.startswith(f"error: {parquet}: is no parquet file of texts: ") and said.count("error:") == 1
    ), said
    parquet.write_bytes(sound)
    place.ran(1, f"--fetch-only {HERE}")


def check_runs(place):
    """Nothing is fetched: no server listens any more."""
    out, _ = place.ran(1, FLAGS)
    before, after = map(
        float,
        re.search(
            r"perplexity of WikiText-2's test text: ([\d.]+) before, ([\d.]+) after 4 steps", out
        ).groups(),
    )
    runs = next((place.root / "runs/real_model/124m").iterdir())
    tests = [
        json.loads((runs / name / "record.json").read_text())["test"]["perplexity"]
        for name in ("before", "after")
    ]
    assert [before, after] == [round(one, 2) for one in tests] and after < before, (before, after, tests)
    assert out.count("sample: 40 tokens") == 2 and "a step has 4 rows instead of 16" in out, out
    assert sorted(path.name for path in (runs / "trained").iterdir()) == [
        "config.json",
        "merges.txt",
        "model.safetensors",
        "vocab.json",
    ]


def check_brought(place, texts):
    """What a machine without a network and without pyarrow can do: raw files, brought by hand."""
    text = place.cache / "real_model/wikitext"
    shutil.rmtree(text)
    text.mkdir()
    for split in SPLITS:
        shutil.copy(texts / f"wiki.{split}.raw", text)
    place.ran(1, f"--fetch-only {HERE}")
    assert all((text / f"wiki_{split}.bin").stat().st_size > 1024 for split in SPLITS)


def main():
    programs, folder, pyarrow = (
        pathlib.Path(sys.argv[1]).resolve(),
        pathlib.Path(sys.argv[2]).resolve(),
        sys.argv[3],
    )
    texts = folder / "made"
    texts.mkdir()
    files, place = made_files(texts, pyarrow), Place(folder, programs)
    check_without_network(place, files)
    with Hub(files) as hub:
        check_interruption(place, hub)
        check_whole(place, files, texts)
        check_damaged(place, hub, texts)
    check_runs(place)
    check_brought(place, texts)
    (folder / "bare").mkdir()
    check_without_the_package(folder / "bare", programs)
    said = subprocess.run(
        ["lessons/real_model.sh", "125m"],
        cwd=place.root,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 64 and "lessons/real_model.sh 124m, or" in said.stderr, said


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""GPT-2 and WikiText-2 from the hub of Hugging Face, for lessons/real_model.sh.

usage: real_model.py missing SIZE PLACE    the files that are still to be brought, one a line: their address,
                                           and where they go below PLACE
       real_model.py fetch SIZE PLACE      says size and licence, and fetches them; needs huggingface_hub
       real_model.py raw PLACE             wiki.train.raw and its like from the parquet files; needs pyarrow
       real_model.py report BEFORE AFTER   what two records say of the test text
exit: 0; 65 a file is damaged; 69 the hub cannot be reached, or a package is missing; 73 PLACE cannot be
written
"""
import errno
import hashlib
import math
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "records/curves"))
from run_files import (
    CANNOT_WRITE,
    DATA,
    MISSING,
    WHOLE,
    Refused,
    number,
    read_run,
    run_program,
    say,
    write_whole,
)  # noqa: E402

HUB = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
MODELS = {"124m": "gpt2", "355m": "gpt2-medium", "774m": "gpt2-large", "1558m": "gpt2-xl"}
MODEL_FILES = (
    "config.json",
    "vocab.json",
    "merges.txt",
    "model.safetensors",
)  # the vocabulary is for transformers; prepare has its own
TEXT = "Salesforce/wikitext"
# Names of the text's parts here and at Hugging Face's hub.
SPLITS = {"train": "train", "valid": "validation", "test": "test"}


class Source:
    """One repository of the hub: which of its files are needed, and the folder that they lie in."""

    def __init__(self, kind, name, folder, files):
        self.kind, self.name, self.folder = kind, name, folder
        self.missing = [file for file in files if not self.sound(file)]

    def sound(self, file):
        """Whether it is there, and has the SHA-256 that the hub names: its library keeps that beside what it
        fetched, as it does an etag."""
        path, note = self.folder / file, self.folder / f".cache/huggingface/download/{file}.metadata"
        sums = (
            re.findall("^[0-9a-f]{64}$", note.read_text(errors="replace"), re.M)
            if path.is_file() and note.is_file()
            else []
        )
        if not sums:  # somebody brought it, or it is small and has no such sum
            return path.exists()
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() in sums

    def page(self):
        return f"{HUB}/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"


def parquet(split):
    return f"wikitext-2-raw-v1/{SPLITS[split]}-00000-of-00001.parquet"


def sources(size, place):
    text = place / "wikitext"
    # Users who brought the raw text, or have prepared it already, need no parquet file.
    wanted = [
        split
        for split in SPLITS
        if not any((text / made).exists() for made in (f"wiki_{split}.bin", f"wiki.{split}.raw"))
    ]
    return [
        Source("model", f"openai-community/{MODELS[size]}", place / size, MODEL_FILES),
        Source("dataset", TEXT, text, [parquet(split) for split in wanted]),
    ]


def to_bring(size, place):
    return [
        f"{source.page()}/resolve/main/{file} -> {source.folder / file}"
        for source in sources(size, place)
        for file in source.missing
    ]


# --- the hub ------------------------------------------------------------------------------------------------


def licence(info):
    said = (info.card_data or {}).get("license")
    return ", ".join(said) if isinstance(said, list) else said or "none is named"


def readable(count):
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def announce(api, source):
    """Says what will be fetched. Returns the commit that all files are of."""
    ask = api.model_info if source.kind == "model" else api.dataset_info
    info = ask(source.name, files_metadata=True)
    size = sum(file.size or 0 for file in info.siblings if file.rfilename in source.missing)
    say(
        f"{source.name}: {readable(size)} to fetch into {source.folder}; licence: {licence(info)} (its "
        f"card: {source.page()})"
    )
    return info.sha


def fetch(size, place):
    # The hub's Xet transfers begin anew after an interruption, so they are switched off.
    os.environ["HF_HUB_DISABLE_XET"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

    def missing(where, what, fix):
        return Refused(MISSING, where, what, "\n    ".join([fix, *to_bring(size, place)]))

    try:
        from huggingface_hub import HfApi, hf_hub_download
    except ImportError as error:
        raise missing(
            "huggingface_hub", error, "lessons/real_model.sh installs it; or bring these files:"
        ) from None
    api = HfApi(endpoint=HUB, token=False)
    try:
        wanted = [source for source in sources(size, place) if source.missing]
        commits = [announce(api, source) for source in wanted]
        for source, commit in zip(wanted, commits):
            for file in source.missing:
                if (source.folder / file).exists():
                    say(f"{source.folder / file}: is not what the hub has, and is fetched again")
                    (source.folder / file).unlink()
                hf_hub_download(
                    source.name,
                    file,
                    repo_type=source.kind,
                    revision=commit,
                    local_dir=source.folder,
                    endpoint=HUB,
                    token=False,
                )
                if not source.sound(file):
                    raise ValueError(f"{file} came with another SHA-256 than the hub names")
    except Exception as error:  # whatever the hub's library makes of an answer
        if isinstance(error, OSError) and (error.filename or error.errno in (errno.ENOSPC, errno.EDQUOT)):
            raise Refused(
                CANNOT_WRITE,
                error.filename or place,
                error.strerror,
                "make room there, or name another place: STAGECRAFT_CACHE",
            ) from None
        reason = (
            next(iter(str(error).splitlines()), "")
            if isinstance(error, (OSError, ValueError))
            else f"{type(error).__name__}: {error}"
        )
        raise missing(
            HUB,
            reason or type(error).__name__,
            "the same command goes on where this one was interrupted; or bring these files:",
        ) from None


# --- the text -----------------------------------------------------------------------------------------------


def raw(place):
    """The lines of the original files: in parquet the empty ones have lost their blank and their end."""
    import pyarrow.parquet

    text = place / "wikitext"
    for split in SPLITS:
        out, source = text / f"wiki.{split}.raw", text / parquet(split)
        if out.exists() or not source.exists():
            continue
        try:
            lines = pyarrow.parquet.read_table(source, columns=["text"])["text"].to_pylist()
            whole = "".join(line or " \n" for line in lines)
        except (pyarrow.ArrowException, OSError, KeyError, TypeError) as error:
            raise Refused(
                DATA,
                source,
                f"is no parquet file of texts: {error}",
                "remove it: the same command fetches it again",
            ) from None
        write_whole(whole, str(out), "make room there, or name another place: STAGECRAFT_CACHE")


def report(before, after):
    first, last = read_run(before), read_run(after)
    for run in (first, last):
        if "test" not in run.record:
            raise Refused(DATA, run.file, '"test" is missing', WHOLE)
    perplexities = [math.exp(min(number(run.record["test"]["loss"]), 700)) for run in (first, last)]
    say(
        f"perplexity of WikiText-2's test text: {perplexities[0]:.2f} before, {perplexities[1]:.2f} after "
        f"{len(last.steps)} steps ({last.record['test']['rows']:,} rows, each from its own first token)"
    )


def main(arguments):
    command, *words = arguments
    if command == "missing":
        say("\n".join(to_bring(words[0], pathlib.Path(words[1]))))
    elif command == "fetch":
        fetch(words[0], pathlib.Path(words[1]))
    elif command == "raw":
        raw(pathlib.Path(words[0]))
    else:
        report(*words)
    return 0


if __name__ == "__main__":
    run_program(main)

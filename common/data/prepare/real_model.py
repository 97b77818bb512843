#!/usr/bin/env python3
"""GPT-2 and WikiText-2 from the hub of Hugging Face, for lessons/real_model.sh.

usage: real_model.py missing SIZE PLACE    the files that are still to be brought, one a line: their address, and where they go below PLACE
       real_model.py fetch SIZE PLACE      says size and licence, and fetches them; needs huggingface_hub
       real_model.py raw PLACE             wiki.train.raw and its like from the parquet files; needs pyarrow
       real_model.py report BEFORE AFTER   what two records say of the test text
exit: 0; 69 the hub cannot be reached, or a package is missing; 73 PLACE cannot be written
"""
import errno
import json
import os
import pathlib
import sys

MISSING, CANNOT_WRITE = 69, 73  # docs/troubleshooting.md, "How a run ends"
HUB = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
MODELS = {"124m": "gpt2", "355m": "gpt2-medium", "774m": "gpt2-large", "1558m": "gpt2-xl"}
MODEL_FILES = ("config.json", "vocab.json", "merges.txt", "model.safetensors")  # the vocabulary is for transformers; prepare has its own
TEXT = "Salesforce/wikitext"
SPLITS = {"train": "train", "valid": "validation", "test": "test"}  # ours: the hub's


class Source:
    """One repository of the hub: which of its files are needed, and the folder that they lie in."""

    def __init__(self, kind, name, folder, files):
        self.kind, self.name, self.folder, self.files = kind, name, folder, files

    def missing(self):
        return [file for file in self.files if not (self.folder / file).exists()]

    def page(self):
        return f"{HUB}/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"


def parquet(split):
    return f"wikitext-2-raw-v1/{SPLITS[split]}-00000-of-00001.parquet"


def sources(size, place):
    text = place / "wikitext"
    # Who brought the raw text, or has prepared it already, needs no parquet.
    wanted = [split for split in SPLITS if not any((text / made).exists() for made in (f"wiki_{split}.bin", f"wiki.{split}.raw"))]
    return [Source("model", f"openai-community/{MODELS[size]}", place / size, MODEL_FILES),
            Source("dataset", TEXT, text, [parquet(split) for split in wanted])]


def to_bring(size, place):
    return [f"{source.page()}/resolve/main/{file} -> {source.folder / file}" for source in sources(size, place) for file in source.missing()]


def fail(code, where, what, fix, lines=()):
    print("\n".join([f"error: {where}: {what}", f"  fix: {fix}", *(f"    {line}" for line in lines)]), file=sys.stderr)
    sys.exit(code)


# --- the hub --------------------------------------------------------------------------------------------------------------------------


def licence(info):
    said = (info.card_data or {}).get("license")
    return ", ".join(said) if isinstance(said, list) else said or "none is named"


def readable(count):
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def announce(api, source):
    """Says what will be fetched. Returns the commit that all files are of."""
    ask = api.model_info if source.kind == "model" else api.dataset_info
    info = ask(source.name, files_metadata=True)
    size = sum(file.size or 0 for file in info.siblings if file.rfilename in source.missing())
    print(f"{source.name}: {readable(size)} to fetch into {source.folder}; licence: {licence(info)} (its card: {source.page()})", flush=True)
    return info.sha


def fetch(size, place):
    os.environ["HF_HUB_DISABLE_XET"] = "1"  # its transfers begin anew after an interruption
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    try:
        from huggingface_hub import HfApi, hf_hub_download
    except ImportError as error:
        fail(MISSING, "huggingface_hub", str(error), "lessons/real_model.sh installs it; or bring these files:", to_bring(size, place))
    api = HfApi(endpoint=HUB, token=False)
    try:
        wanted = [source for source in sources(size, place) if source.missing()]
        commits = [announce(api, source) for source in wanted]
        for source, commit in zip(wanted, commits):
            for file in source.missing():
                hf_hub_download(source.name, file, repo_type=source.kind, revision=commit, local_dir=source.folder, endpoint=HUB, token=False)
    except OSError as error:  # those of requests and of the hub are, too
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            fail(CANNOT_WRITE, error.filename or place, os.strerror(error.errno), "make room there, or name another place: STAGECRAFT_CACHE")
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        fail(MISSING, HUB, reason, "the same command goes on where this one was interrupted; or bring these files:", to_bring(size, place))


# --- the text -------------------------------------------------------------------------------------------------------------------------


def raw(place):
    """The lines of the original files: in parquet the empty ones have lost their blank and their end."""
    import pyarrow.parquet
    text = place / "wikitext"
    for split in SPLITS:
        out, source = text / f"wiki.{split}.raw", text / parquet(split)
        if out.exists() or not source.exists():
            continue
        lines = pyarrow.parquet.read_table(source, columns=["text"])["text"].to_pylist()
        partial = out.with_suffix(f".{os.getpid()}")
        partial.write_text("".join(line or " \n" for line in lines), encoding="utf-8")
        partial.rename(out)


def report(before, after):
    first, last = (json.loads(pathlib.Path(path, "record.json").read_text(encoding="utf-8")) for path in (before, after))
    steps, tests = len(last["steps"]["step"]), [record["test"] for record in (first, last)]
    print(f"perplexity of WikiText-2's test text: {tests[0]['perplexity']:.2f} before, {tests[1]['perplexity']:.2f} after {steps} steps "
          f"({tests[1]['rows']:,} rows, each from its own first token)")


def main():
    command, *words = sys.argv[1:]
    if command == "missing":
        print("\n".join(to_bring(words[0], pathlib.Path(words[1]))))
    elif command == "fetch":
        fetch(words[0], pathlib.Path(words[1]))
    elif command == "raw":
        raw(pathlib.Path(words[0]))
    else:
        report(*words)


if __name__ == "__main__":
    main()

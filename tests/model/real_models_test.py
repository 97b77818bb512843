"""A new user's path through docs/real_models.md: the page's own commands, in a folder that has files of the
names it uses, with the shape of a tiny model appended. Where transformers is there, it finds the same
perplexities, and loads what was trained. What the page says of bytes and of refused files is asked for, too.

  .deps/oracle/bin/python tests/model/real_models_test.py build/cpu/bin FOLDER     (FOLDER: an empty one)
"""
import array
import concurrent.futures
import importlib.util
import itertools
import json
import math
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "tests/docs")]
from commands_test import clean_environment, playground  # noqa: E402
from rendering import checks  # noqa: E402

PAGE = "docs/real_models.md"
MARK = {"not_run": "tests/model runs them with a tiny model"}
PYARROW = ROOT / ".deps/prepare/bin/python"
HAS_TRANSFORMERS = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))

LENGTH, WIDTH, BLOCKS, VOCAB = 16, 32, 2, 50257
TINY = {
    "model.layers": BLOCKS,
    "model.heads": 2,
    "model.width": WIDTH,
    "model.context": LENGTH,
    "batch.sequence": LENGTH,
    "batch.global": 4,
    "precision.dtype": "fp32",
}
STEPS = 104  # instead of 300, which take a minute; the checkpoint after 100 is what the resumed run has
HERE = "--preset cpu --no-build --device cpu " + " ".join(
    f"--set {key}={value}" for key, value in TINY.items()
)


# --- what the page has --------------------------------------------------------------------------------------


def commands(text):
    """The lines of its blocks that are for this test."""
    return [
        line
        for match in checks.FENCE.finditer(text)
        if match[2] == "sh" and checks.mark_above(PAGE, text, match.start()) == MARK
        for line in match[3].splitlines()
    ]


def table(text, head):
    """The rows of the table whose first heading is `head`, that of its headings first."""
    lines = itertools.takewhile(
        lambda line: line.startswith("|"), text[text.index(f"| {head} |") :].splitlines()
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [rows[0], *rows[2:]]


# --- what a user brings -------------------------------------------------------------------------------------


def parameters():
    """Names and shapes as GPT-2's files have them."""
    yield from (("wte.weight", (VOCAB, WIDTH)), ("wpe.weight", (LENGTH, WIDTH)))
    for block in range(BLOCKS):
        for name, shape in (
            ("ln_1", (WIDTH,)),
            ("attn.c_attn", (WIDTH, 3 * WIDTH)),
            ("attn.c_proj", (WIDTH, WIDTH)),
            ("ln_2", (WIDTH,)),
            ("mlp.c_fc", (WIDTH, 4 * WIDTH)),
            ("mlp.c_proj", (4 * WIDTH, WIDTH)),
        ):
            yield from ((f"h.{block}.{name}.weight", shape), (f"h.{block}.{name}.bias", shape[-1:]))
    yield from (("ln_f.weight", (WIDTH,)), ("ln_f.bias", (WIDTH,)))


def write_weights(path, more=()):
    """A safetensors file by hand, with `more` tensors behind the model's: {name: shape}."""
    draw, header, data = random.Random(1), {}, b""
    for name, shape in (*parameters(), *dict(more).items()):
        begin, size = len(data), math.prod(shape)
        data += array.array(
            "f",
            [1.0] * size
            if re.search(r"ln_\w\.weight", name)
            else (draw.uniform(-0.3, 0.3) for _ in range(size)),
        ).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_model(place):
    if not HAS_TRANSFORMERS:
        write_weights(place / "model.safetensors")
        (place / "config.json").write_text('{"model_type": "gpt2", "n_head": 2}')
        return
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    torch.set_num_threads(1)
    config = GPT2Config(
        n_layer=BLOCKS, n_head=2, n_embd=WIDTH, n_positions=LENGTH, vocab_size=VOCAB, initializer_range=0.2
    )
    GPT2LMHeadModel(config).save_pretrained(place)


def write_texts(place):
    for seed, (name, words) in enumerate((("train", 3000), ("valid", 400), ("test", 300))):
        sentences = " ".join(
            f"The {i * (seed + 3) % 17} foxes jump over {i * 31 % 97} dogs ." for i in range(words // 3)
        )
        (place / f"wiki.{name}.raw").write_text(
            f" = Title = \n\n {sentences} \n\n = Another = \n\n {sentences[:500]} \n"
        )
    if PYARROW.exists():
        program = (
            "import pyarrow, pyarrow.parquet, sys; "
            "pyarrow.parquet.write_table(pyarrow.table({'text': open(sys.argv[1]).read().splitlines()}), "
            "sys.argv[2])"
        )
        subprocess.run(
            [PYARROW, "-c", program, place / "wiki.test.raw", place / "test-00000-of-00001.parquet"],
            check=True,
        )


# --- running ------------------------------------------------------------------------------------------------


def environment():
    env = clean_environment()
    if HAS_TRANSFORMERS:  # the page's python3 is one that has it
        env["PATH"] = f"{pathlib.Path(sys.executable).parent}:{env['PATH']}"
    return env


def ran(place, line, code=0):
    """A line of the page, or one like it."""
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=place,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        done.returncode == code
    ), f"{line}: exit {done.returncode}, {code} was expected\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def newest(place, lesson):
    return json.loads(
        max(
            (place / "runs" / lesson).glob("*/record.json"), key=lambda path: path.stat().st_mtime_ns
        ).read_text()
    )


def follow(place, text):
    """Runs the page's commands from top to bottom; {command: (what it said, the record that it left)}."""
    found = {}
    for line in commands(text):
        if ".parquet" in line and not PYARROW.exists() or "transformers" in line and not HAS_TRANSFORMERS:
            print(f"left out: {line}")
            continue
        lesson = re.match(r"lessons/(\w+)/run\.sh", line)
        steps = "" if "--steps" in line else f"--steps {STEPS}"
        adapted = f"{line} {HERE} {steps}" if lesson else line
        if "--eval-every" in line and "--resume" not in line:
            # The interruption that the page describes. Steps are so short here that a checkpoint written
            # asynchronously might be lost with the run, so saves are synchronous.
            found[line] = ran(place, adapted + " --save-async off --inject kill@1,102", code=75), newest(
                place, lesson[1]
            )
        else:
            found[line] = ran(place, adapted), newest(place, lesson[1]) if lesson else None
    return found


# --- perplexity by transformers -----------------------------------------------------------------------------


def perplexity(folder, tokens_file):
    """(rows, perplexity): rows of LENGTH tokens, each from its first token on, as --test cuts them."""
    import torch
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    raw = pathlib.Path(tokens_file).read_bytes()[
        1024:
    ]  # llm.c's format: 256 words of header, then 16-bit ids
    tokens = torch.frombuffer(bytearray(raw), dtype=torch.int16).to(torch.int64) & 0xFFFF
    rows, loss = (len(tokens) - 1) // LENGTH, 0.0
    with torch.no_grad():
        for r in range(rows):
            x = tokens[r * LENGTH : (r + 1) * LENGTH + 1]
            loss += torch.nn.functional.cross_entropy(
                model(x[None, :-1]).logits.double()[0], x[1:], reduction="sum"
            ).item()
    return rows, math.exp(loss / (rows * LENGTH))


def expect_equal(test, folder, tokens_file):
    if not HAS_TRANSFORMERS:
        return
    rows, wanted = perplexity(folder, tokens_file)
    assert test["rows"] == rows and abs(test["perplexity"] / wanted - 1) < 1e-5, (test, rows, wanted)
    print(f"perplexity {test['perplexity']:.4f}, transformers {wanted:.4f}")


# --- what must have come of it ------------------------------------------------------------------------------


def the_one(found, *words):
    """What came of the page's only command with these words."""
    lines = [line for line in found if all(word in line for word in words)]
    assert len(lines) == 1, (words, lines)
    return found[lines[0]]


def check_path(place, found):
    said, given = the_one(found, "--steps 0", "--test")
    assert "nothing was trained, and so no claim was checked" in said, said
    expect_equal(given["test"], place, place / "wiki_test.bin")
    assert "sample: 100 tokens (temperature 0.8" in the_one(found, "--sample 100")[0]

    _, killed = the_one(found, "--init", "--eval-every 50")
    assert [
        step for step, loss in zip(killed["steps"]["step"], killed["steps"]["validation_loss"]) if loss
    ] == [49, 99], killed["steps"]
    said, resumed = the_one(found, "--resume latest")
    assert "resumes after 100 steps" in said and re.search(
        r"validation [\d.]+ \(16 of \d+ rows\)", said
    ), said
    assert resumed["as_predicted"] and resumed["steps"]["step"][-1] == STEPS - 1, resumed
    assert resumed["test"]["perplexity"] < given["test"]["perplexity"] / 2, "it has learned"
    expect_equal(resumed["test"], place / "mine", place / "wiki_test.bin")
    assert the_one(found, "05_offload")[1]["as_predicted"]
    whole, half = (
        (place / name).stat().st_size for name in ("trained.safetensors", "trained_bf16.safetensors")
    )
    assert 0.49 < half / whole < 0.51, (whole, half)
    if PYARROW.exists():
        assert (place / "wiki_test_lines.bin").stat().st_size > 1024


def held(place, plan):
    """ "2.84 GB", with "host 1.99 GB" where much lies there."""
    lesson, *flags = plan.split()
    said = ran(
        place, f"build/cpu/bin/{lesson} --strategy lessons/{lesson}/config.json --plan {' '.join(flags)}"
    )
    totals = {
        place or "device": int(count.replace(",", ""))
        for place, count in re.findall(r"^  total(?:, (\w+))? .*?([\d,]+)$", said, re.M)
    }
    host = totals.get("pinned", 0) + totals.get("host", 0)
    return f"{totals['device'] / 1e9:.2f} GB" + (f", host {host / 1e9:.2f} GB" if host > 1e8 else "")


def check_bytes(place, text):
    heads, *rows = table(text, "fine-tuning")
    cells = {(row[0], head): cell for row in rows for head, cell in zip(heads[1:], row[1:])}
    asked = [
        f"{head.strip('`')} --device cuda --workload configs/{name.strip('`')}.json" for name, head in cells
    ]
    said = re.search(r"The smallest model then holds ([\d.]+ GB)", text)[1]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        *found, on_cpu = pool.map(
            lambda plan: held(place, plan),
            [
                *asked,
                "00_one_device --workload configs/finetune_124m.json --set "
                "precision.dtype=fp32 --set batch.micro=1",
            ],
        )
    wrong = [
        f"{plan}: the page says {cell}, the plan {now}"
        for plan, cell, now in zip(asked, cells.values(), found)
        if cell != now
    ]
    assert not wrong and len(cells) == 20, "\n".join(wrong)
    assert on_cpu == said, (on_cpu, said)


def check_refusals(place, text):
    """Every message of the page's last table is one of a program, but for numbers."""
    (place / "pickle.bin").write_bytes(b"PK\x03\x04" + bytes(60))
    (place / "model.safetensors.index.json").write_text("{}")
    (place / "utf16.txt").write_bytes(b"abc\0" * 100)
    run = "lessons/00_one_device/run.sh --preset cpu --no-build --steps 0"
    wider = f"--workload configs/finetune_124m.json {HERE} --init model.safetensors".replace(
        f"width={WIDTH}", "width=48"
    )
    others = wider.replace("width=48", f"width={WIDTH}").replace("heads=2", "heads=4")
    said = [
        ran(place, line, code=65)
        for line in (
            f"{run} --init pickle.bin",
            f"{run} --init model.safetensors.index.json",
            f"{run} --data utf16.txt",
            f"{run} --data wiki_test.bin",
            f"lessons/00_one_device/run.sh --steps 0 --data wiki_test.bin {wider}",
            f"lessons/00_one_device/run.sh --steps 0 --data wiki_test.bin {others}",
            f"{run} --data wiki_test.bin --set model.vocab={VOCAB}",
        )
    ]
    for message, *_ in table(text, "message")[1:]:
        pattern = re.sub(r"\d+", r"\\d+", re.escape(message.strip("`"))).replace(
            "'wte", "'(?:transformer\\.)?wte"
        )
        assert any(re.search(pattern, one) for one in said), f"{message}: no program says so\n" + "\n".join(
            said
        )


def main():
    programs, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    place, text = playground(folder / "repository", programs), (ROOT / PAGE).read_text()
    write_model(place)
    write_texts(place)
    shutil.copy(place / "model.safetensors", place / "medium.safetensors")
    check_path(place, follow(place, text))
    check_bytes(place, text)
    check_refusals(place, text)
    if not HAS_TRANSFORMERS:
        print(
            "skipped: transformers is missing (common/setup/setup.sh --oracle installs it); the rest has "
            "passed"
        )
        sys.exit(77)


if __name__ == "__main__":
    main()

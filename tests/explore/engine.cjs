// The engine of docs/explore/index.html without a browser. Reads lines of JSON, {words, files, read}, and answers each with a line:
// {code, out, err, file}; `read` names a file that the program wrote.   usage: node engine.cjs index.html
const fs = require("fs"), os = require("os"), path = require("path"), zlib = require("zlib"), readline = require("readline");
const page = fs.readFileSync(process.argv[2], "utf8");
const part = name => page.match(new RegExp(`<script id="${name}"[^>]*>([^]*?)</script>`))[1];
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "engine"));
fs.writeFileSync(path.join(folder, "engine.cjs"), part("engine"));
const makeEngine = require(path.join(folder, "engine.cjs"));
fs.rmSync(folder, { recursive: true });
makeEngine({ wasmBinary: zlib.gunzipSync(Buffer.from(part("code"), "base64")) }).then(engine => {
  readline.createInterface({ input: process.stdin }).on("line", line => {
    const { words, files = {}, read } = JSON.parse(line);
    for (const [name, text] of Object.entries(files)) engine.FS.writeFile(name, text);
    if (read && engine.FS.analyzePath(read).exists) engine.FS.unlink(read);
    const text = words.join("\n"), size = engine.lengthBytesUTF8(text) + 1, into = engine._malloc(size);
    engine.stringToUTF8(text, into, size);
    const from = engine._explore(into), said = JSON.parse(engine.UTF8ToString(from));
    engine._free(into), engine._free(from);
    said.file = read && engine.FS.analyzePath(read).exists ? engine.FS.readFile(read, { encoding: "utf8" }) : null;
    process.stdout.write(JSON.stringify(said) + "\n");
  });
});

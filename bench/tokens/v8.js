// The counters in V8, interleaved: node v8.js DIRECTORY o200k|cl100k NAME=MODULE.wasm…
const fs = require("fs");
const zlib = require("zlib");
const [directory, encodingName, ...modules] = process.argv.slice(2);
const encoding = encodingName === "cl100k" ? 1 : 0;
const ROUNDS = 5;
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

function load(spec) {
  const [name, path] = spec.split("=");
  const bytes = fs.readFileSync(path);
  const start = performance.now();
  const module = new WebAssembly.Module(bytes);
  const compiled = performance.now();
  const imports = {};
  let instance;
  for (const item of WebAssembly.Module.imports(module)) {
    imports[item.module] ??= {};
    // Nothing of the host is used but random bytes, and those may be zero.
    imports[item.module][item.name] = item.kind === "function" ? () => 0 : undefined;
  }
  instance = new WebAssembly.Instance(module, imports);
  instance.exports._initialize?.();
  const { memory, bench_alloc, bench_count } = instance.exports;
  const fill = (text) => {
    const at = bench_alloc(text.length);
    new Uint8Array(memory.buffer, at, text.length).set(text);
    return at;
  };
  const at = fill(Buffer.from("ready"));
  const cpu = process.cpuUsage();
  const before = performance.now();
  bench_count(encoding, at, 5);
  const ready = performance.now() - before;
  const readyCpu = process.cpuUsage(cpu).user / 1e3;
  console.log(JSON.stringify({ module: name, bytes: bytes.length, gzip: zlib.gzipSync(bytes, { level: 9 }).length,
    compile_ms: +(compiled - start).toFixed(1), ready_ms: +ready.toFixed(2), ready_cpu_ms: +readyCpu.toFixed(2), memory_mb: +megabytes(memory.buffer.byteLength) }));
  return { name, fill, count: (at, length) => bench_count(encoding, at, length) >>> 0 };
}

const counters = modules.map(load);
console.log(JSON.stringify({ node: process.version, v8: process.versions.v8, cpu: require("os").cpus()[0].model }));
for (const file of fs.readdirSync(directory).filter((file) => file.endsWith(".txt")).sort()) {
  const text = fs.readFileSync(`${directory}/${file}`);
  const white = /space|tabs|newlines/.test(file);
  const row = { text: file.slice(0, -4) };
  const runs = counters.map((counter) => {
    // tiktoken-rs panics on 1 MB of white space.
    let length = white && counter.name === "tiktoken-rs" ? 199_998 : text.length;
    if (process.env.LIMIT && counter.name !== "tokengate") length = Math.min(length, +process.env.LIMIT);
    while (length < text.length && (text[length] & 0xc0) === 0x80) length--;
    return { counter, length, at: counter.fill(text.subarray(0, length)), best: Infinity, gone: false };
  });
  for (let round = 0; round < ROUNDS; round++) {
    for (const run of runs) {
      if (run.gone) continue;
      const start = performance.now();
      try {
        run.tokens = run.counter.count(run.at, run.length);
      } catch {
        run.gone = true;
        continue;
      }
      run.best = Math.min(run.best, performance.now() - start);
      if (run.best > 1500) run.gone = true;
    }
  }
  for (const run of runs) row[run.counter.name] = +(run.length / run.best / 1e3).toFixed(1);
  const [first, ...others] = runs;
  for (const other of others) {
    if (other.length === first.length && other.best < Infinity && other.tokens !== first.tokens) row[`wrong?${other.counter.name}`] = other.tokens - first.tokens;
  }
  console.log(JSON.stringify(row));
}

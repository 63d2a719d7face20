// How long the first count of a fresh instance takes, the counters by turns: node ready.js INSTANCES NAME=MODULE.wasm…
// Envoy's V8 compiles as Node's does with --no-liftoff --no-wasm-lazy-compilation.
const fs = require("fs");
const [instances, ...specs] = process.argv.slice(2);
const ENCODINGS = ["o200k", "cl100k"];

const counters = specs.map((spec) => {
  const [name, path] = spec.split("=");
  return { name, module: new WebAssembly.Module(fs.readFileSync(path)), wall: [[], []], cpu: [[], []] };
});

function instantiate(module) {
  const imports = {};
  for (const item of WebAssembly.Module.imports(module)) {
    imports[item.module] ??= {};
    // Nothing of the host is used but random bytes, and those may be zero.
    imports[item.module][item.name] = () => 0;
  }
  const { exports } = new WebAssembly.Instance(module, imports);
  exports._initialize?.();
  return exports;
}

for (let round = 0; round < +instances; round++) {
  for (const counter of counters) {
    const { memory, bench_alloc, bench_count } = instantiate(counter.module);
    const at = bench_alloc(5);
    new Uint8Array(memory.buffer, at, 5).set(Buffer.from("ready"));
    counter.start = memory.buffer.byteLength;
    for (const encoding of round % 2 ? [0, 1] : [1, 0]) {
      const before = process.cpuUsage();
      const start = performance.now();
      bench_count(encoding, at, 5);
      counter.wall[encoding].push(performance.now() - start);
      const { user, system } = process.cpuUsage(before);
      counter.cpu[encoding].push((user + system) / 1e3);
    }
    counter.end = memory.buffer.byteLength;
  }
}

// The least, the lower quartile, the median, the upper quartile.
function spread(times) {
  const sorted = times.toSorted((a, b) => a - b);
  return [0, 0.25, 0.5, 0.75].map((part) => +sorted[Math.floor(part * sorted.length)].toFixed(2));
}
for (const { name, wall, cpu, start, end } of counters) {
  for (const [encoding, text] of ENCODINGS.entries()) {
    console.log(JSON.stringify({ ready: name, encoding: text, wall_ms: spread(wall[encoding]), cpu_ms: spread(cpu[encoding]) }));
  }
  console.log(JSON.stringify({ ready: name, memory_mb_before: +(start / 1e6).toFixed(2), memory_mb_with_both: +(end / 1e6).toFixed(2) }));
}

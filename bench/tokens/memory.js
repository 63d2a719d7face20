// Linear memory of a filter as it ships, and the time until a vocabulary is ready, in V8: node memory.js FILTER.wasm…
//
// Plays as much of Envoy as a request needs until its tokens are asked for. Each row is a VM of its own.
const fs = require("fs");

const MODELS = { o200k_base: "gpt-4o", cl100k_base: "gpt-4", llama3: "llama-3.1-70b", qwen2: "qwen2.5-coder",
  deepseek_v3: "deepseek-chat", mistral: "mistral-nemo" };
const CONFIGURATION = Buffer.from(JSON.stringify({ quota: { cluster: "quota", authority: "quota" } }));
const REQUEST = { ":method": "POST", ":path": "/v1/chat/completions", authorization: "Bearer key" };
const [CALL_ROOT, REQUEST_BODY, CONFIGURATION_BUFFER, PAUSE] = [1, 0, 7, 1];

function pairs(headers) {
  const texts = Object.entries(headers).flat().map((text) => Buffer.from(text));
  const words = Buffer.alloc(4 + 4 * texts.length);
  words.writeUInt32LE(texts.length / 2);
  texts.forEach((text, n) => words.writeUInt32LE(text.length, 4 + 4 * n));
  return Buffer.concat([words, ...texts.flatMap((text) => [text, Buffer.from([0])])]);
}

class Vm {
  constructor(module) {
    this.body = Buffer.alloc(0);
    this.reserves = [];
    const imports = {};
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
      imports[from] ??= {};
      imports[from][name] = this[name] ? this[name].bind(this) : () => 0;
    }
    const { exports } = new WebAssembly.Instance(module, imports);
    this.exports = exports;
    exports._initialize();
    exports.proxy_on_context_create(CALL_ROOT, 0);
    exports.proxy_on_vm_start(CALL_ROOT, 0);
    if (!exports.proxy_on_configure(CALL_ROOT, CONFIGURATION.length)) throw new Error("the filter refuses its configuration");
    this.next = CALL_ROOT + 1;
  }

  get megabytes() {
    return this.exports.memory.buffer.byteLength / 1e6;
  }

  // The prompt's tokens as they are asked for, and how long that took, in milliseconds.
  count(model, content) {
    const { exports } = this;
    const context = this.next++;
    exports.proxy_on_context_create(context, CALL_ROOT);
    if (exports.proxy_on_request_headers(context, 3, 0) !== PAUSE) throw new Error("the request is not held");
    this.body = Buffer.from(JSON.stringify({ model, messages: [{ role: "user", content }] }));
    const before = performance.now();
    exports.proxy_on_request_body(context, this.body.length, 1);
    for (let ticks = 0; this.reserves.length === 0 && ticks < 10_000; ticks++) exports.proxy_on_tick(CALL_ROOT);
    const took = performance.now() - before;
    const { prompt_tokens: tokens } = this.reserves.pop();
    exports.proxy_on_log(context);
    exports.proxy_on_done(context);
    exports.proxy_on_delete(context);
    return { tokens, took };
  }

  give(bytes, at, size) {
    const to = this.exports.proxy_on_memory_allocate(bytes.length);
    const { buffer } = this.exports.memory;
    new Uint8Array(buffer, to, bytes.length).set(bytes);
    const view = new DataView(buffer);
    view.setUint32(at, to, true);
    view.setUint32(size, bytes.length, true);
    return 0;
  }

  proxy_get_buffer_bytes(kind, start, length, at, size) {
    const from = { [REQUEST_BODY]: this.body, [CONFIGURATION_BUFFER]: CONFIGURATION }[kind];
    return from ? this.give(from.subarray(start, start + length), at, size) : 1;
  }

  proxy_get_header_map_pairs(_, at, size) {
    return this.give(pairs(REQUEST), at, size);
  }

  // Not found.
  proxy_get_property() {
    return 1;
  }

  proxy_get_current_time_nanoseconds(at) {
    new DataView(this.exports.memory.buffer).setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true);
    return 0;
  }

  proxy_http_call(_cluster, _clusterSize, headers, headersSize, body, bodySize, _trailers, _trailersSize, _timeout, token) {
    new DataView(this.exports.memory.buffer).setUint32(token, this.next++, true);
    const bytes = (at, length) => Buffer.from(this.exports.memory.buffer.slice(at, at + length));
    // The model list is asked for too, and never answered: the filter then goes by the models' names.
    if (bytes(headers, headersSize).includes("/v1/reserve")) this.reserves.push(JSON.parse(bytes(body, bodySize)));
    return 0;
  }
}

for (const path of process.argv.slice(2)) {
  const module = new WebAssembly.Module(fs.readFileSync(path));
  const show = (vm, name, more = "") => console.log(`${vm.megabytes.toFixed(2).padStart(6)} MB  ${name}${more}`);
  console.log(path);
  const fresh = new Vm(module);
  show(fresh, "no request yet");
  const all = new Vm(module);
  for (const [name, model] of Object.entries(MODELS)) {
    const vm = new Vm(module);
    const first = vm.count(model, "ready");
    // Not built in, so counted by another and raised.
    if (first.tokens !== 8) continue;
    all.count(model, "ready");
    const again = vm.count(model, "ready");
    show(vm, name, `, ready in ${(first.took - again.took).toFixed(1)} ms`);
  }
  show(all, "all of them");
  const text = Array.from({ length: 180_000 }, (_, n) => `word${n % 977}`).join(" ").slice(0, 1_000_000);
  const { tokens, took } = all.count("gpt-4o", text);
  show(all, `and after a prompt of 1 MB, ${tokens} tokens in ${took.toFixed(0)} ms`);
}

// Plays as much of Envoy as a request needs until its tokens are asked for: for measuring a filter as it ships, in V8.
const fs = require("fs");

const CONFIGURATION = Buffer.from(JSON.stringify({ quota: { cluster: "quota", authority: "quota" } }));
const REQUEST = { ":method": "POST", ":path": "/v1/chat/completions", authorization: "Bearer key" };
const [ROOT, REQUEST_BODY, CONFIGURATION_BUFFER, PAUSE] = [1, 0, 7, 1];

function pairs(headers) {
  const texts = Object.entries(headers).flat().map((text) => Buffer.from(text));
  const words = Buffer.alloc(4 + 4 * texts.length);
  words.writeUInt32LE(texts.length / 2);
  texts.forEach((text, n) => words.writeUInt32LE(text.length, 4 + 4 * n));
  return Buffer.concat([words, ...texts.flatMap((text) => [text, Buffer.from([0])])]);
}

class FilterVm {
  static compile(path) {
    return new WebAssembly.Module(fs.readFileSync(path));
  }

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
    exports.proxy_on_context_create(ROOT, 0);
    exports.proxy_on_vm_start(ROOT, 0);
    if (!exports.proxy_on_configure(ROOT, CONFIGURATION.length)) throw new Error("the filter refuses its configuration");
    this.next = ROOT + 1;
  }

  get megabytes() {
    return this.exports.memory.buffer.byteLength / 1e6;
  }

  // Sends a body in pieces of this size and ticks until its tokens are asked for. `clock` gives milliseconds; `times`
  // has what each callback took, and `last` what that of the last piece did.
  send(body, piece, clock) {
    const { exports } = this;
    const context = this.next++;
    exports.proxy_on_context_create(context, ROOT);
    if (exports.proxy_on_request_headers(context, Object.keys(REQUEST).length, 0) !== PAUSE) throw new Error("not held");
    const times = [];
    const timed = (call) => {
      const before = clock();
      call();
      times.push(clock() - before);
    };
    for (let at = 0; at < body.length; ) {
      at = Math.min(body.length, at + piece);
      this.body = body.subarray(0, at);
      timed(() => exports.proxy_on_request_body(context, at, at === body.length ? 1 : 0));
    }
    const [last] = times.splice(-1);
    while (this.reserves.length === 0 && times.length < 100_000) timed(() => exports.proxy_on_tick(ROOT));
    const { prompt_tokens: tokens } = this.reserves.pop();
    exports.proxy_on_log(context);
    exports.proxy_on_done(context);
    exports.proxy_on_delete(context);
    return { tokens, last, times };
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

module.exports = { FilterVm };

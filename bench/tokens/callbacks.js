// How long a filter holds its worker at a time while it counts a body, in V8: node callbacks.js FILTER.wasm (SIZE=)
//
// In milliseconds of processor time, so that a busy machine changes little; the least of three runs.
const { FilterVm } = require("./filter-vm.js");

const SIZE = +(process.env.SIZE ?? 1_000_000);
const PIECE = 16 * 1024;
const ROUNDS = 3;

let seed = 7;
const random = (below) => {
  seed = (seed * 1103515245 + 12345) & 0x7fffffff;
  return Math.floor((seed / 0x80000000) * below);
};
const letters = Array.from({ length: SIZE }, () => String.fromCharCode(97 + random(26))).join("");
const filled = (unit) => unit.repeat(Math.floor(SIZE / unit.length));
const list = (unit) => filled(`${unit},`).slice(0, -1);
const parts = Array.from({ length: Math.floor(SIZE / 1_000) }, (_, n) => letters.slice(n * 1_000, n * 1_000 + 970));
const request = (content, modelFirst = true) => {
  const members = ['"model":"gpt-4o"', `"messages":[{"content":${content}}]`];
  return `{${(modelFirst ? members : members.reverse()).join(",")}}`;
};

const BODIES = {
  "random letters": request(`"${letters}"`),
  "as a part, type first": request(`[{"type":"text","text":"${letters}"}]`),
  "type last": request(`[{"text":"${letters}","type":"text"}]`),
  "type last, model last": request(`[{"text":"${letters}","type":"text"}]`, false),
  "no type": request(`[{"text":"${letters}"}]`),
  "type given twice": request(`[{"type":"text","text":"${letters}","type":"odd"}]`),
  "spaces, type last": request(`[{"text":"${filled(" ".repeat(126) + "x")}","type":"text"}]`),
  "many parts, type last": request(`[${parts.map((text) => `{"text":"${text}","type":"text"}`).join(",")}]`),
  "empty parts": request(`[${list("{}")}]`),
  numbers: request(`[${list("1")}]`),
  strings: request(`[${list('"a"')}]`),
  brackets: request(`[{"x":[${list("[]")}]}]`),
  escapes: request(`[{"text":"${filled("\\\\")}"}]`),
  "escapes, type last": request(`[{"text":"${filled("\\u0061")}","type":"text"}]`),
  "empty messages": `{"model":"gpt-4o","messages":[${list("{}")}]}`,
  "members of a message": `{"model":"gpt-4o","messages":[{${list('"a":1')}}]}`,
  "members of the request": `{"model":"gpt-4o","messages":[],${list('"a":1')}}`,
};

function clock() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e3;
}

const module_ = FilterVm.compile(process.argv[2]);
console.log("| body | longest callback, ms | that of the last byte | in all | linear memory, MB |\n|---|---|---|---|---|");
for (const [name, text] of Object.entries(BODIES)) {
  const vm = new FilterVm(module_);
  // Makes the tables.
  vm.send(Buffer.from(request('"x"')), PIECE, clock);
  const body = Buffer.from(text);
  const runs = Array.from({ length: ROUNDS }, () => vm.send(body, PIECE, clock));
  const least = (of) => Math.min(...runs.map(of)).toFixed(1);
  const cells = [
    least(({ times }) => Math.max(...times)),
    least(({ last }) => last),
    least(({ times, last }) => times.reduce((all, one) => all + one, last)),
    vm.megabytes.toFixed(1),
  ];
  console.log(`| ${name} | ${cells.join(" | ")} |`);
}

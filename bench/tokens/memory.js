// Linear memory of a filter as it ships, and the time until a vocabulary is ready, in V8: node memory.js FILTER.wasm…
//
// Each row is a VM of its own.
const { FilterVm } = require("./filter-vm.js");

const MODELS = { o200k_base: "gpt-4o", cl100k_base: "gpt-4", llama3: "llama-3.1-70b", qwen2: "qwen2.5-coder",
  deepseek_v3: "deepseek-chat", mistral: "mistral-nemo" };

const chat = (model, content) => Buffer.from(JSON.stringify({ model, messages: [{ role: "user", content }] }));

function count(vm, model, content) {
  const body = chat(model, content);
  const { tokens, last, times } = vm.send(body, body.length, () => performance.now());
  return { tokens, took: times.reduce((all, one) => all + one, last) };
}

for (const path of process.argv.slice(2)) {
  const module = FilterVm.compile(path);
  const show = (vm, name, more = "") => console.log(`${vm.megabytes.toFixed(2).padStart(6)} MB  ${name}${more}`);
  console.log(path);
  const fresh = new FilterVm(module);
  show(fresh, "no request yet");
  const all = new FilterVm(module);
  for (const [name, model] of Object.entries(MODELS)) {
    const vm = new FilterVm(module);
    const first = count(vm, model, "ready");
    // Not built in, so counted by another and raised.
    if (first.tokens !== 8) continue;
    count(all, model, "ready");
    const again = count(vm, model, "ready");
    show(vm, name, `, ready in ${(first.took - again.took).toFixed(1)} ms`);
  }
  show(all, "all of them");
  const text = Array.from({ length: 180_000 }, (_, n) => `word${n % 977}`).join(" ").slice(0, 1_000_000);
  const { tokens, took } = count(all, "gpt-4o", text);
  show(all, `and after a prompt of 1 MB, ${tokens} tokens in ${took.toFixed(0)} ms`);
}

#!/usr/bin/env bash
# Builds one wasm module per counter into the target directory's bench-modules.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$(cd ../.. && pwd)/target}
target=$CARGO_TARGET_DIR
mkdir -p "$target/bench-modules"
for counter in ${*:-tokengate tiktoken-rs bpe-openai toktok-rs}; do
    flags=""
    [ "$counter" != tokengate-simd ] || flags="-C target-feature=+simd128"
    RUSTFLAGS=$flags cargo build -q --release --lib --target wasm32-wasip1 --features "${counter%-simd}"
    cp "$target/wasm32-wasip1/release/bench_tokens.wasm" "$target/bench-modules/$counter.wasm"
done

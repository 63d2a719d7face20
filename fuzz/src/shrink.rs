//! Runs a target so that its panics are answers, and makes inputs that panic smaller.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use crate::target::Run;

const SHRINK_TIME: Duration = Duration::from_secs(10);

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics are kept, not printed.
pub fn install_hook() {
    panic::set_hook(Box::new(|info| LAST_PANIC.with(|last| *last.borrow_mut() = info.to_string())));
}

/// The run's signature, or what it panicked with.
pub fn attempt(run: Run, input: &[u8]) -> Result<u64, String> {
    panic::catch_unwind(AssertUnwindSafe(|| run(input))).map_err(|_| LAST_PANIC.with(RefCell::take))
}

/// The place in the source where a panic came from.
fn place(fault: &str) -> &str {
    fault.lines().next().unwrap_or("")
}

/// Takes out ever smaller pieces as long as the target breaks at the same place.
pub fn shrink(run: Run, mut input: Vec<u8>, fault: &str) -> Vec<u8> {
    let deadline = Instant::now() + SHRINK_TIME;
    let mut size = input.len() / 2;
    while size > 0 {
        let (mut at, before) = (0, input.len());
        while at < input.len() && Instant::now() < deadline {
            let end = (at + size).min(input.len());
            let smaller = [&input[..at], &input[end..]].concat();
            match attempt(run, &smaller) {
                Err(other) if place(&other) == place(fault) => input = smaller,
                _ => at = end,
            }
        }
        size = if size == 1 && input.len() < before { 1 } else { size / 2 };
        if Instant::now() >= deadline {
            break;
        }
    }
    input
}

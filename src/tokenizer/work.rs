//! Counts the steps taken, so that a test can tell linear from quadratic without a clock. Outside tests it
//! does nothing.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[inline(always)]
pub fn step() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// The steps that something takes.
#[cfg(test)]
pub fn steps_of(run: impl FnOnce()) -> u64 {
    let before = STEPS.with(std::cell::Cell::get);
    run();
    STEPS.with(std::cell::Cell::get) - before
}

//! A closed loop: so many callers, each with one call under way.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use crate::Outcome;

/// What `count` calls took.
pub struct Timed {
    pub wall: Duration,
    /// CPU time of this thread, which makes the calls, in µs.
    pub cpu_us: f64,
    /// µs, by the number of the call.
    pub each_us: Vec<f64>,
}

/// Makes the calls 0 to `count`. Checks answers outside the measured time.
pub async fn closed_loop<T>(
    callers: usize,
    count: usize,
    call: impl AsyncFn(usize) -> Outcome<T>,
    check: impl Fn(&T) -> bool,
) -> Outcome<Timed> {
    let next = Cell::new(0);
    let each_us = RefCell::new(vec![0.0; count]);
    let answers = RefCell::new(Vec::with_capacity(count));
    let caller = async || {
        while next.get() < count {
            let number = next.replace(next.get() + 1);
            let since = Instant::now();
            let answer = call(number).await?;
            each_us.borrow_mut()[number] = since.elapsed().as_secs_f64() * 1e6;
            answers.borrow_mut().push(answer);
        }
        Outcome::Ok(())
    };
    let before = cpu_us()?;
    let since = Instant::now();
    try_join_all((0..callers).map(|_| caller())).await?;
    let wall = since.elapsed();
    let cpu_us = cpu_us()? - before;
    match answers.into_inner().iter().all(check) {
        true => Ok(Timed { wall, cpu_us, each_us: each_us.into_inner() }),
        false => Err("an answer was another one than expected: nothing is measured".into()),
    }
}

/// CPU time that this process's only thread has used.
fn cpu_us() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let ns = text.split(' ').next().ok_or("/proc/self/schedstat is empty")?;
    Ok(ns.parse::<f64>()? / 1000.0)
}

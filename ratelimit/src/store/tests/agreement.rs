use std::time::Duration;

use super::*;
use crate::limits::Algorithm;
use crate::store::{Closing, Lifetimes, Settlement};

/// A small generator of numbers that is the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Memory and Redis give the same answers and come to the same state, operation by operation.
#[tokio::test]
async fn the_stores_agree() {
    let years = Duration::from_secs(10 * 365 * 86_400);
    // The test's time is not the server's, which ends its keys by its own.
    let lifetimes = Lifetimes { record: years, settled: years, refused: years, ..Lifetimes::default() };
    let memory = Fixture::memory_with(lifetimes);
    let redis = Fixture::redis_with(lifetimes).await;
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut now = T0;
    let mut latest = T0;
    for operation in 0..4_000 {
        let step = numbers.below(3_000);
        // Back by less than a window in all: beyond that a store may have thrown the window away.
        now = if numbers.below(8) == 0 { (now - step).max(latest - 50_000) } else { now + step };
        latest = latest.max(now);
        memory.clock.set(now);
        redis.clock.set(now);
        let number = operation / 4 + numbers.below(8);
        let charges = charges(&mut numbers);
        match numbers.below(4) {
            0 | 1 => {
                let mut hold = hold(number, &charges);
                hold.attempt = 1 + u8::try_from(numbers.below(2)).unwrap();
                assert_eq!(memory.reserve(&hold).await, redis.reserve(&hold).await, "{operation}");
            }
            _ => {
                let settlement = closing(&mut numbers, number, &charges);
                let answers = (memory.settle(settlement.clone()).await, redis.settle(settlement).await);
                assert_eq!(answers.0, answers.1, "{operation}");
            }
        }
        assert_eq!(memory.explain(&charges).await, redis.explain(&charges).await, "{operation}");
    }
}

fn charges(numbers: &mut Numbers) -> [Amount; 3] {
    let hourly = tokens(3_000, numbers.below(120)).named("hourly");
    let hourly = hourly.algorithm(Algorithm::FixedWindow { length_ms: 600_000 });
    [requests(8), tokens(400, hourly.tokens), hourly]
}

fn closing(numbers: &mut Numbers, number: u64, charges: &[Amount]) -> Settlement {
    let mut settlement = match numbers.below(6) {
        0 => settlement(number, Closing::Held),
        1 => settlement(number, RELEASED),
        2 => settlement(number, UNSENT),
        3 => booking(number, charges, numbers.below(200)),
        _ => settlement(number, used(numbers.below(200))),
    };
    if numbers.below(5) == 0 {
        settlement.attempt = Some(1);
    }
    settlement
}

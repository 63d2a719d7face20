//! What buckets count is what was settled and what is held open, window by window.

use std::collections::BTreeMap;

use super::properties::{of, topped_up};
use super::*;
use crate::limits::Algorithm;
use crate::limits::tests::Numbers;
use crate::store::{Closing, Extended, Settled, TopUp};

over_both_stores!(suite: charges_are_conserved, every_window_has_its_charges);

/// The longest that a reservation is open here; in a service, a record's life, which is shorter than any day.
const OPEN_MS: u64 = 5 * MINUTE;

/// "Days" of six and of nine minutes, in turn.
fn calendar_start(number: u64) -> u64 {
    T0 + number / 2 * 15 * MINUTE + number % 2 * 6 * MINUTE
}

fn calendar_number(now: u64) -> u64 {
    (0..).find(|number| calendar_start(number + 1) > now).unwrap()
}

/// A fixed window, a calendar, and what has no windows.
fn charges(now: u64) -> [Amount; 3] {
    let current = calendar_number(now);
    let before = current.checked_sub(1).map_or(T0 - MINUTE, calendar_start);
    let later = [current, current + 1, current + 2].map(calendar_start);
    let boundaries_ms = [before, later[0], later[1], later[2]];
    [
        tokens(1_000_000, 0),
        tokens(1_000_000, 0).named("c").algorithm(Algorithm::CalendarWindow { boundaries_ms }),
        tokens(0, 0).named("b").algorithm(Algorithm::Balance),
    ]
}

/// Which window of each of them a moment is in.
fn windows(now: u64) -> [u64; 3] {
    [now / MINUTE, calendar_number(now), 0]
}

/// What one charge of a reservation is worth, and where.
struct Charged {
    windows: [u64; 3],
    tokens: u64,
    at: u64,
    open: bool,
}

pub mod suite {
    use super::*;

    /// What buckets count is what was settled and what is held open, whatever came in which order.
    pub async fn charges_are_conserved(fixture: Fixture) {
        let charges = topped_up(&fixture, 1_000_000).await;
        let mut numbers = Numbers(42);
        let mut charged: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
        let mut never_made = std::collections::BTreeSet::new();
        for _ in 0..400 {
            let number = numbers.below(60);
            let tokens = numbers.below(100);
            match numbers.below(4) {
                0 | 1 => {
                    let verdict = fixture.verdict(&hold(number, &of(&charges, tokens))).await;
                    assert_eq!(verdict == HELD, !charged.contains_key(&number));
                    charged.entry(number).or_insert((tokens, true));
                }
                2 => {
                    let total = fixture.extend(extension(number, tokens)).await;
                    if let (Some((held, true)), Extended::Held { output_tokens }) =
                        (charged.get_mut(&number), total)
                    {
                        // All of the first hold is prompt.
                        let first = *held % 1_000;
                        *held = first + output_tokens * 1_000;
                    }
                }
                _ => {
                    let closing = [used(tokens), Closing::Held, RELEASED, UNSENT][numbers.below(4) as usize];
                    let settled = fixture.settle(settlement(number, closing)).await;
                    match charged.get_mut(&number) {
                        Some((held, open @ true)) => {
                            assert_eq!(settled, Settled::Replaced);
                            let all = *held % 1_000 + *held / 1_000;
                            *held = match closing {
                                Closing::Used(usage) => usage.total(),
                                Closing::Held => all,
                                Closing::Released { .. } => 0,
                            };
                            *open = false;
                        }
                        // It has closed what was never made, and still charges nothing.
                        Some(_) if never_made.contains(&number) && closing != UNSENT => {
                            assert_eq!(settled, Settled::Unknown);
                        }
                        Some(_) => assert_eq!(settled, Settled::Already),
                        None => {
                            charged.insert(number, (0, false));
                            never_made.insert(number);
                        }
                    }
                }
            }
        }
        let sum: u64 = charged
            .values()
            .map(|(tokens, open)| if *open { tokens % 1_000 + tokens / 1_000 } else { *tokens })
            .sum();
        let open = charged.values().filter(|(_, open)| *open).count() as u64;
        let state = fixture.explain(&charges).await;
        assert_eq!(uses(&state.gauges), [sum, sum, sum, sum, sum, open]);
        assert_eq!(state.open_holds, open);
    }

    /// A refund goes to the hold's window, an excess to the one of the settle; nothing comes from or goes elsewhere.
    pub async fn every_window_has_its_charges(fixture: Fixture) {
        let top_up =
            TopUp { account: account(), bucket: bucket("b"), grant_id: "g".to_owned(), amount: 1 << 40 };
        fixture.store.top_up(&top_up, TIME).await.unwrap();
        let mut numbers = Numbers(4_711);
        let mut counted: [BTreeMap<u64, u64>; 3] = Default::default();
        let mut reserved: BTreeMap<u64, Charged> = BTreeMap::new();
        let (mut now, mut refunds_of_old, mut excesses_of_old) = (T0, 0, 0);
        for number in 0..500 {
            now += numbers.below(12_000);
            fixture.clock.set(now);
            let here = windows(now);
            if numbers.below(2) == 0 {
                let tokens = numbers.below(100);
                let charges = charges(now).map(|charge| Amount { tokens, ..charge });
                assert_eq!(fixture.verdict(&hold(number, &charges)).await, HELD);
                for (counted, window) in counted.iter_mut().zip(here) {
                    *counted.entry(window).or_default() += tokens;
                }
                reserved.insert(number, Charged { windows: here, tokens, at: now, open: true });
            } else {
                let open: Vec<_> = reserved
                    .iter()
                    .filter(|(_, one)| one.open && now - one.at < OPEN_MS)
                    .map(|(number, _)| *number)
                    .collect();
                let Some(settled) = open.get(numbers.below(open.len().max(1) as u64) as usize) else {
                    continue;
                };
                let one = reserved.get_mut(settled).unwrap();
                let tokens = numbers.below(150);
                let closing =
                    [used(tokens), used(tokens), Closing::Held, RELEASED, UNSENT][numbers.below(5) as usize];
                assert_eq!(fixture.settle(settlement(*settled, closing)).await, Settled::Replaced);
                let tokens = match closing {
                    Closing::Used(_) => tokens,
                    Closing::Held => one.tokens,
                    Closing::Released { .. } => 0,
                };
                for ((counted, held_in), window) in counted.iter_mut().zip(one.windows).zip(here) {
                    *counted.entry(held_in).or_default() -= one.tokens.saturating_sub(tokens);
                    *counted.entry(window).or_default() += tokens.saturating_sub(one.tokens);
                    refunds_of_old += u64::from(held_in != window && tokens < one.tokens);
                    excesses_of_old += u64::from(held_in != window && tokens > one.tokens);
                }
                (one.tokens, one.open) = (tokens, false);
            }
            let expected: Vec<_> = counted
                .iter()
                .zip(here)
                .map(|(counted, window)| counted.get(&window).copied().unwrap_or(0))
                .collect();
            assert_eq!(uses(&fixture.explain(&charges(now)).await.gauges), expected, "{number}");
        }
        let all: u64 = reserved.values().map(|one| one.tokens).sum();
        assert_eq!(counted.map(|counted| counted.values().sum::<u64>()), [all; 3]);
        assert!(refunds_of_old > 50 && excesses_of_old > 50, "{refunds_of_old} {excesses_of_old}");
    }
}

//! Every message may come twice, and those of one reservation in any order.

use super::*;
use crate::limits::Algorithm;
use crate::store::{
    Amendment, Change, Closing, Correction, Extension, Hold, Settled, Settlement, TopUp, Verdict,
};
use crate::tag::Tag;

over_both_stores!(suite: a_repeat_of_anything_changes_nothing, one_reservation_in_any_order);

/// Everything that can be asked of a store and changes it.
enum Message {
    Reserve(Hold),
    Settle(Settlement),
    Extend(Extension),
    TopUp(TopUp),
    Amend(Amendment),
    Note(Tag, Option<&'static str>),
    Forget(Tag, &'static str),
}

async fn send(fixture: &Fixture, message: &Message) {
    let store = &fixture.store;
    let done = match message {
        Message::Reserve(hold) => store.reserve(hold, TIME).await.is_ok(),
        Message::Settle(settlement) => fixture.settle_all(std::slice::from_ref(settlement)).await[0].is_ok(),
        Message::Extend(extension) => store.extend(std::slice::from_ref(extension), TIME).await[0].is_ok(),
        Message::TopUp(top_up) => store.top_up(top_up, TIME).await.is_ok(),
        Message::Amend(amendment) => store.amend(amendment, TIME).await.is_ok(),
        Message::Note(name, text) => store.note(*name, *text, TIME).await.is_ok(),
        Message::Forget(name, text) => store.forget_note(*name, text, TIME).await.is_ok(),
    };
    assert!(done);
}

fn with_a_calendar() -> Vec<Amount> {
    let boundaries_ms = [T0 - MINUTE, T0, T0 + 60 * MINUTE, T0 + 120 * MINUTE];
    let mut charges = one_of_each();
    charges.push(tokens(1_000, 0).named("c").algorithm(Algorithm::CalendarWindow { boundaries_ms }));
    charges
}

fn request(number: u64, output: u64) -> Hold {
    Hold { prompt_tokens: 10, output_tokens: output, ..hold(number, &with_a_calendar()) }
}

/// What an operator does to the bucket of a charge.
fn amendment(id: &str, charge: &Amount, change: Change) -> Message {
    let correction = Correction { meter: charge.charge.meter, change };
    Message::Amend(Amendment { account: account(), id: Tag::of("correction", [Some(id)]), correction })
}

pub mod suite {
    use super::*;

    pub async fn a_repeat_of_anything_changes_nothing(fixture: Fixture) {
        let charges = with_a_calendar();
        let name = Tag::of("note", [Some("n")]);
        let top_up =
            TopUp { account: account(), bucket: bucket("b"), grant_id: "g".to_owned(), amount: 10_000 };
        let mut messages = vec![Message::TopUp(top_up)];
        messages.extend((1..=5).map(|number| Message::Reserve(request(number, 20))));
        messages.extend([
            // Refused.
            Message::Reserve(request(6, 100_000)),
            Message::Reserve(Hold { attempt: 2, ..request(2, 20) }),
            Message::Extend(extension(1, 60)),
            Message::Extend(extension(2, 1_000_000)),
            Message::Extend(extension(77, 60)),
            Message::Settle(settlement(1, used(5))),
            Message::Settle(settlement(2, used(500))),
            Message::Settle(settlement(3, Closing::Held)),
            Message::Settle(settlement(4, RELEASED)),
            Message::Settle(settlement(5, UNSENT)),
            Message::Settle(settlement(7, UNSENT)),
            Message::Settle(Settlement { attempt: Some(1), ..settlement(8, UNSENT) }),
            Message::Settle(booking(9, &charges, 40)),
            Message::Settle(booking(7, &charges, 40)),
            // They come too late.
            Message::Reserve(request(1, 20)),
            Message::Reserve(request(7, 20)),
            Message::Extend(extension(1, 90)),
            Message::Note(name, Some("text")),
            Message::Forget(name, "another"),
            Message::Forget(name, "text"),
            Message::Note(name, None),
        ]);
        for charge in charges.iter().filter(|charge| charge.charge.meter.bucket != bucket("n")) {
            let id = |change: &str| format!("{change} {:?}", charge.charge.meter.bucket);
            messages.push(amendment(&id("charge"), charge, Change::Excess { amount: 7 }));
            messages.push(amendment(&id("give back"), charge, Change::GiveBack { amount: 3 }));
        }
        for (number, message) in messages.iter().enumerate() {
            send(&fixture, message).await;
            let before = fixture.dump();
            for _ in 0..2 {
                send(&fixture, message).await;
                assert_eq!(fixture.dump(), before, "{number}");
            }
            // Later as well, but for the leases: those are renewed, which is what a later one is for.
            fixture.clock.set(T0 + 1_000 + number as u64 * 10);
            send(&fixture, message).await;
            assert_eq!(fixture.dump(), before, "{number}, later");
        }
        let renewal = Message::Extend(Extension { output_tokens: None, lease: true, ..extension(10, 0) });
        send(&fixture, &Message::Reserve(request(10, 20))).await;
        fixture.clock.set(T0 + 30_000);
        send(&fixture, &renewal).await;
        // In Redis the key's end, which is by the server's clock, is set again.
        let before = fixture.explain(&charges).await;
        send(&fixture, &renewal).await;
        assert_eq!(fixture.explain(&charges).await, before);
    }

    /// At most one hold, none after the close, and the buckets have what the close says.
    pub async fn one_reservation_in_any_order(fixture: Fixture) {
        let charges = [requests(100_000), tokens(1_000_000, 10)];
        let mut expected = [0, 0];
        for (number, order) in orders(6).iter().enumerate() {
            let number = number as u64;
            let reserve = |attempt| Hold { attempt, ..hold(number, &charges) };
            let (mut holds, mut closed, mut open) = (0, false, false);
            for message in order {
                match message {
                    0..=2 => {
                        let verdict = fixture.verdict(&reserve([1, 1, 2][*message])).await;
                        holds += u32::from(verdict == HELD);
                        open |= verdict == HELD;
                        assert!(!closed || verdict == Verdict::Gone, "{order:?}: {verdict:?}");
                        assert!(open || verdict == Verdict::Gone, "{order:?}: {verdict:?}");
                    }
                    _ => {
                        let (closing, charged) =
                            [(UNSENT, [0, 0]), (used(3), [1, 3]), (UNSENT, [0, 0])][message - 3];
                        let attempt = (*message == 3).then_some(1);
                        let settled =
                            fixture.settle(Settlement { attempt, ..settlement(number, closing) }).await;
                        assert_eq!(
                            settled == Settled::Replaced,
                            open && (attempt.is_none() || settled == Settled::Replaced)
                        );
                        if settled == Settled::Replaced {
                            expected = [expected[0] + charged[0], expected[1] + charged[1]];
                            open = false;
                        }
                        // A release by an attempt leaves the door open for a later one.
                        closed |= attempt.is_none() || settled == Settled::Replaced;
                    }
                }
            }
            assert!(holds <= 1 && closed && !open, "{order:?}: {holds}");
        }
        let state = fixture.explain(&charges).await;
        assert_eq!((uses(&state.gauges), state.open_holds), (expected.to_vec(), 0));
        assert!(expected[0] > 100, "{expected:?}");
    }
}

/// All orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let last = count - 1;
    let insert = |order: Vec<usize>| (0..count).map(move |at| [&order[..at], &[last], &order[at..]].concat());
    orders(last).into_iter().flat_map(insert).collect()
}

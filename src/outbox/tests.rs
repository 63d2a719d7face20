#![allow(clippy::unwrap_used)]

use super::*;
use crate::identity::Identified;
use tokengate_api::{Outcome, ReservationId};

fn id(n: u16) -> ReservationId {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&n.to_be_bytes());
    ReservationId::from_bytes(bytes)
}

fn item(n: u16) -> SettleItem {
    SettleItem {
        id: id(n),
        account: None,
        outcome: Outcome::Held,
        sent: true,
        usage: None,
        model: None,
        service_tier: None,
        age_ms: 0,
        queued_ms: 0,
        reserve: None,
    }
}

fn reserve(n: u16) -> ReserveRequest {
    serde_json::from_value(serde_json::json!({
        "id": id(n), "attempt": 2, "deadline_ms": 70, "key_hash": "ab".repeat(32), "asserted": {"x-user": "ann"},
        "ip": "192.0.2.1", "model": "gpt-4o", "dialect": "openai", "endpoint": "chat.completions",
        "prompt_tokens": 8, "request_id": "r"}))
    .unwrap()
}

fn settle(n: u16) -> Settle {
    Settle { item: item(n), reserve: None, reserved_at: 0, frees: None }
}

fn release(n: u16) -> Settle {
    let item = SettleItem { outcome: Outcome::Released, sent: false, reserve: Some(reserve(n)), ..item(n) };
    Settle { item, ..settle(n) }
}

fn ids(batch: &Batch) -> Vec<u16> {
    let number = |item: &SettleItem| u16::from_str_radix(item.id.as_str().get(..4).unwrap(), 16).unwrap();
    batch.items.iter().map(number).collect()
}

fn taken(batch: &Batch, status: SettleStatus) -> Delivery {
    let results = batch.items.iter().map(|item| SettleResult { id: item.id.clone(), status });
    Delivery::Taken(results.collect())
}

fn caller(n: u8) -> CallerId {
    CallerId::of(&Identified::Key(n.to_string()))
}

fn settled() -> Delivery {
    Delivery::Taken(Vec::new())
}

#[test]
fn a_batch_is_repeated_until_it_is_taken() {
    let mut outbox = Outbox::new(16);
    outbox.push(Settle { reserved_at: 900, ..settle(1) }, 1_000);
    let batch = outbox.next_batch(1_050).unwrap();
    assert_eq!((batch.items.first().unwrap().age_ms, batch.items.first().unwrap().queued_ms), (150, 50));
    assert_eq!(batch.repeated, 0);
    outbox.push(settle(2), 1_060);
    assert_eq!(outbox.next_batch(1_070), None, "one at a time");
    outbox.delivered(batch.number, Delivery::Failed, 2_000, 0);
    assert_eq!(outbox.next_batch(2_099), None, "backs off");
    let second = outbox.next_batch(2_100).unwrap();
    assert_eq!((second.repeated, ids(&second)), (1, vec![1, 2]));
    outbox.delivered(second.number, settled(), 2_200, 0);
    assert!(outbox.is_empty() && outbox.dropped_settles() == 0);
    assert_eq!(outbox.next_batch(9_000), None);
}

#[test]
fn full_means_the_oldest_goes() {
    let mut outbox = Outbox::new(2);
    for n in 1..=3 {
        outbox.push(settle(n), 0);
    }
    assert_eq!(outbox.dropped_settles(), 1);
    assert_eq!(ids(&outbox.next_batch(0).unwrap()), [2, 3]);
}

#[test]
fn a_flood_of_releases_displaces_no_settle() {
    let mut outbox = Outbox::new(16);
    outbox.push(settle(1), 0);
    for n in 0..MAX_RELEASES + 100 {
        outbox.push(release(u16::try_from(n + 100).unwrap()), 0);
    }
    outbox.push(settle(2), 0);
    assert_eq!((outbox.dropped_settles(), outbox.dropped_releases()), (0, 100));
    assert_eq!((outbox.settles(), outbox.releases()), (2, MAX_RELEASES));
    let batch = outbox.next_batch(0).unwrap();
    assert_eq!(ids(&batch).get(..3).unwrap(), [1, 2, 200], "settles first, the oldest release is gone");
    assert_eq!(batch.items.len(), MAX_SETTLE_ITEMS);
    outbox.delivered(batch.number, settled(), 0, 0);
    while let Some(batch) = outbox.next_batch(0) {
        outbox.delivered(batch.number, settled(), 0, 0);
    }
    assert!(outbox.is_empty());
    assert!(outbox.releases.room() < 256, "the memory of the flood is given back");
}

#[test]
fn a_release_says_only_whose_it_is() {
    let mut outbox = Outbox::new(16);
    outbox.push(release(1), 0);
    let mut answered = release(2);
    answered.item.account = Some("acc".to_owned());
    outbox.push(answered, 0);
    let batch = outbox.next_batch(5).unwrap();
    let [first, second] = batch.items.as_slice() else { unreachable!() };
    let sent = first.reserve.as_ref().unwrap();
    assert_eq!((&sent.id, sent.attempt, &sent.key_hash), (&first.id, 2, &"ab".repeat(32)));
    assert_eq!(sent.asserted.get("x-user").unwrap(), "ann", "it can decide the caller's tenant and plan");
    assert_eq!((sent.prompt_tokens, &sent.ip, &sent.model, &sent.request_id), (0, &None, &None, &None));
    assert_eq!((second.account.as_deref(), &second.reserve), (Some("acc"), &None));
}

#[test]
fn what_is_urgent_does_not_wait_for_the_batch_under_way() {
    let mut outbox = Outbox::new(64);
    let urgent = |n| Settle { frees: Some(caller(1)), ..settle(n) };
    outbox.push(settle(1), 0);
    assert!(!outbox.is_urgent());
    let first = outbox.next_batch(0).unwrap();
    outbox.push(settle(2), 0);
    assert_eq!(outbox.next_batch(0), None);
    outbox.push(urgent(3), 0);
    assert!(outbox.is_urgent());
    let second = outbox.next_batch(0).unwrap();
    assert_eq!(ids(&second), [2, 3]);
    assert!(!outbox.is_urgent());
    // They may be answered in any order; what failed comes again.
    outbox.delivered(second.number, settled(), 0, 0);
    outbox.delivered(first.number, Delivery::Failed, 0, 0);
    outbox.push(urgent(4), 0);
    assert_eq!(outbox.next_batch(99), None, "nothing hurries towards a service that is away");
    let third = outbox.next_batch(100).unwrap();
    assert_eq!(ids(&third), [1, 4]);
    outbox.push(urgent(5), 100);
    assert_eq!(outbox.next_batch(100), None, "one at a time until it is back");
    outbox.delivered(third.number, settled(), 101, 0);
    assert_eq!(ids(&outbox.next_batch(101).unwrap()), [5]);
}

#[test]
fn a_caller_whose_slot_is_being_freed_is_told() {
    let mut outbox = Outbox::new(64);
    outbox.push(Settle { frees: Some(caller(1)), ..settle(1) }, 0);
    assert!(!outbox.is_freeing(&caller(1), outbox.next_number()), "nothing is under way");
    let batch = outbox.next_batch(0).unwrap();
    let below = outbox.next_number();
    assert!(outbox.is_freeing(&caller(1), below) && !outbox.is_freeing(&caller(2), below));
    outbox.push(Settle { frees: Some(caller(1)), ..settle(2) }, 0);
    let later = outbox.next_batch(0).unwrap();
    outbox.delivered(batch.number, settled(), 0, 0);
    assert!(!outbox.is_freeing(&caller(1), below), "what left later is not waited for");
    outbox.delivered(later.number, Delivery::Failed, 0, 0);
    assert!(!outbox.is_freeing(&caller(1), outbox.next_number()), "nor what must come again");
}

#[test]
fn batches_that_fail_together_wait_once() {
    let mut outbox = Outbox::new(64);
    let mut numbers = Vec::new();
    for n in 1..=9 {
        outbox.push(Settle { frees: Some(caller(1)), ..settle(n) }, 0);
        numbers.extend(outbox.next_batch(0).map(|batch| batch.number));
    }
    assert_eq!(numbers.len(), MAX_FLIGHTS);
    for number in numbers {
        outbox.delivered(number, Delivery::Failed, 0, 0);
    }
    assert_eq!(outbox.next_batch(99), None);
    assert_eq!(outbox.next_batch(100).unwrap().items.len(), 9);
}

#[test]
fn a_hold_that_the_service_forgot_is_booked_by_a_second_settle() {
    let mut outbox = Outbox::new(16);
    outbox.push(Settle { reserve: Some(Box::new(reserve(1))), reserved_at: 10, ..settle(1) }, 20);
    outbox.push(settle(2), 20);
    let batch = outbox.next_batch(30).unwrap();
    assert!(batch.items.iter().all(|item| item.reserve.is_none()));
    outbox.delivered(batch.number, taken(&batch, SettleStatus::Unknown), 40, 0);
    let again = outbox.next_batch(50).unwrap();
    assert_eq!((ids(&again), outbox.rebooked()), (vec![1], 1));
    let item = again.items.first().unwrap();
    assert_eq!((item.reserve.as_ref(), item.age_ms, item.queued_ms), (Some(&reserve(1)), 40, 30));
    outbox.delivered(again.number, taken(&again, SettleStatus::Unknown), 60, 0);
    assert!(outbox.is_empty(), "once");
    // Of a hold that it knows, nothing is repeated.
    outbox.push(Settle { reserve: Some(Box::new(reserve(3))), ..settle(3) }, 70);
    let batch = outbox.next_batch(70).unwrap();
    outbox.delivered(batch.number, taken(&batch, SettleStatus::Settled), 70, 0);
    assert!(outbox.is_empty());
}

#[test]
fn too_old_is_dropped() {
    let mut outbox = Outbox::new(16);
    outbox.push(settle(1), 0);
    outbox.push(release(2), 0);
    outbox.push(settle(3), 200_000);
    assert_eq!(ids(&outbox.next_batch(300_000).unwrap()), [3]);
    assert_eq!((outbox.dropped_settles(), outbox.dropped_releases()), (1, 1));
}

#[test]
fn one_bad_item_does_not_block_the_others() {
    let mut outbox = Outbox::new(16);
    for n in 1..=3 {
        outbox.push(settle(n), 0);
    }
    outbox.push(release(4), 0);
    outbox.push(release(5), 0);
    let mut through = Vec::new();
    while let Some(batch) = outbox.next_batch(0) {
        let is_bad = ids(&batch).iter().any(|n| [2, 4].contains(n));
        if is_bad {
            outbox.delivered(batch.number, Delivery::Rejected, 0, 0);
        } else {
            through.extend(ids(&batch));
            outbox.delivered(batch.number, settled(), 0, 0);
        }
    }
    assert_eq!(through, [1, 3, 5]);
    assert_eq!((outbox.dropped_settles(), outbox.dropped_releases()), (1, 1));
}

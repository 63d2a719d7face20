//! Settles that are not the usual ones.

use super::service::*;
use super::telling::priced;
use super::*;

/// What was let through without being asked about is charged, whatever the plan contains.
#[tokio::test]
async fn a_booking_of_a_model_that_the_plan_lacks() {
    for running in Running::both(&priced("", "2.00")).await {
        let mut booked = item(1, Outcome::Used, Some(7));
        let reserve = booked.reserve.as_mut().unwrap();
        reserve.model = Some("free".to_owned());
        let refused = running.reserve(reserve).await;
        assert_eq!(refused.reason.as_ref().map(|reason| reason.as_str()), Some("model_not_allowed"));
        assert_eq!(running.settle(booked.clone()).await, SettleStatus::Booked);
        assert_eq!(running.settle(booked).await, SettleStatus::AlreadySettled);
        assert_eq!(running.used(&asked("t", Some("big"), None)).await, uses(&[("tpm", 7)]));
        assert_eq!(running.events()[0]["model"], "free");
    }
}

/// One tenant's bucket cannot be read: the others' settles in the same batch do not wait for it.
#[tokio::test]
async fn one_unreadable_bucket_in_a_batch() {
    let running = Running::on_redis(&priced("", "2.00")).await;
    let server = running.redis.as_ref().unwrap();
    let of_u = ReserveRequest { key_hash: key('b'), ..request(2, 10, Some(20)) };
    let (spoilt, whole) = (running.reserve(&request(1, 10, Some(20))).await, running.reserve(&of_u).await);
    let buckets: Vec<String> = server.command(&["KEYS", &format!("*{}*:b:*", spoilt.account)]);
    assert_eq!(buckets.len(), 1);
    server.command::<()>(&["SET", &buckets[0], "something else"]);
    let batch = [usage_of(1, &spoilt.account, 10, 5), usage_of(2, &whole.account, 10, 5)];
    for statuses in [
        [SettleStatus::Unknown, SettleStatus::Settled],
        [SettleStatus::Unknown, SettleStatus::AlreadySettled],
    ] {
        let results = running.quota.settle(&batch).await.unwrap().results;
        assert_eq!([results[0].status, results[1].status], statuses);
    }
    assert_eq!(running.used(&asked("u", Some("big"), None)).await, uses(&[("tpm", 15)]));
    assert_eq!(running.events().len(), 1);
}

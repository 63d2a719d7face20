//! State of one tenant that nobody can read, and the others.

use super::service::*;
use super::*;

/// Its extension is refused; those that come in the same batch are answered.
#[tokio::test]
async fn an_extension_that_cannot_be_read_is_refused_alone() {
    let policy = format!(
        r#"
version: "1"
models: [{{name: big, match: ["big*"], max_output_tokens: 1000}}]
plans: {{basic: {{models: ["*"]}}}}
keys:
  - {{sha256: "{}", tenant: t, plan: basic}}
  - {{sha256: "{}", tenant: two, plan: basic}}
limits: [{{name: tpm, per: [tenant], count: tokens, algorithm: fixed_window, every: 1h, limit: 100}}]
"#,
        key('a'),
        key('b')
    );
    let running = Running::on_redis(&policy).await;
    let server = running.redis.as_ref().unwrap();
    let of = |digit, number| ReserveRequest { key_hash: key(digit), ..request(number, 10, Some(20)) };
    let (t, two) = (running.reserve(&of('a', 1)).await, running.reserve(&of('b', 2)).await);
    let extend = |number: u8, account: &str, total| ExtendItem {
        id: ReservationId::from_bytes([number; 16]),
        account: account.to_owned(),
        hold_output_tokens: Some(total),
        lease: true,
    };
    let bucket = server.command::<Vec<String>>(&["KEYS", &format!("*{}*:b:*", t.account)]).remove(0);
    for (total, spoil) in [(30, ["SET", &bucket, "F?"].as_slice()), (40, &["ZADD", &bucket, "1", "x"])] {
        server.command::<()>(&["DEL", &bucket]);
        server.command::<()>(spoil);
        let batch = [extend(1, &t.account, total), extend(2, &two.account, total)];
        let answer = running.quota.extend(&batch).await.unwrap();
        let statuses: Vec<_> = answer.results.iter().map(|result| result.status).collect();
        assert_eq!(statuses, [ExtendStatus::Deny, ExtendStatus::Allow], "{spoil:?}");
    }
    assert_eq!(running.used(&asked("two", Some("big"), None)).await, uses(&[("tpm", 50)]));
}

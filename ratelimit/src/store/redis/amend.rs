//! What operators ask for.

use super::super::lifetimes::ms;
use super::super::{AMENDMENT_LIFE, Amended, Amendment, OpenHold, OpenHolds, StoreError};
use super::keys::member_parts;
use super::script::{Call, Kinds};
use super::settle::TRIES;
use super::{RedisStore, answer};
use crate::tag::Tag;

impl RedisStore {
    /// By the script that settles: it leaves the fingerprint in the place of a tombstone.
    pub(super) async fn try_amend(&self, amendment: &Amendment) -> Result<Amended, StoreError> {
        let Amendment { account, id, correction } = amendment;
        let home = correction.meter.bucket.home(*account);
        let key = self.keys.amendment(home, *id);
        let fingerprint = amendment.fingerprint().0.to_vec();
        let mut call = Call {
            kinds: Kinds::default(),
            keys: vec![
                key.clone(),
                self.keys.open_holds(home),
                self.keys.outbox(home),
                self.keys.bucket(*account, correction.meter.bucket),
            ],
            arguments: vec![
                self.now(),
                Vec::new(),
                fingerprint.clone(),
                ms(AMENDMENT_LIFE).to_string().into_bytes(),
                Vec::new(),
                Vec::new(),
                Vec::new(),
                answer::correction(correction),
            ],
        };
        call.kinds.add(answer::letter_of(&correction.meter));
        for _ in 0..TRIES {
            let earlier: Option<Vec<u8>> =
                redis::cmd("GET").arg(&key).query_async(&mut self.connection.clone()).await?;
            match earlier {
                Some(earlier) if earlier == fingerprint => return Ok(Amended::Already),
                Some(_) => return Ok(Amended::Conflict),
                None => {}
            }
            let answer: Vec<u8> = self.patiently(|| self.scripts.settle.run(&self.connection, &call)).await?;
            match answer.as_slice() {
                b"D" => return Ok(Amended::Done),
                b"~" => {}
                answer => return Err(answer::failure(answer.first().copied())),
            }
        }
        Err(StoreError::Contended)
    }

    pub(super) async fn try_open_holds(&self, account: Tag, most: usize) -> Result<OpenHolds, StoreError> {
        let key = self.keys.open_holds(account);
        let now_ms = self.server_now_ms().await?;
        let open = format!("({now_ms}");
        let mut both = redis::pipe();
        both.cmd("ZCOUNT").arg(&key).arg(&open).arg("+inf");
        both.cmd("ZRANGEBYSCORE").arg(&key).arg(&open).arg("+inf").arg("WITHSCORES");
        both.arg("LIMIT").arg(0).arg(most);
        let (total, members): (u64, Vec<(String, f64)>) =
            both.query_async(&mut self.connection.clone()).await?;
        let life = ms(self.lifetimes.record);
        let hold = |(member, lapses): (String, f64)| {
            let (id, model, tokens) = member_parts(&member)?;
            let reserved_at_ms = (lapses as u64).saturating_sub(life);
            Some(OpenHold { id, model, tokens, reserved_at_ms })
        };
        let oldest = members.into_iter().map(hold).collect::<Option<_>>().ok_or(StoreError::Format)?;
        Ok(OpenHolds { total, oldest })
    }
}

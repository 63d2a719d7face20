use futures_util::future::join_all;

use super::super::lifetimes::ms;
use super::super::record;
use super::super::settlement::{Correction, Step, Stored, step};
use super::super::{Closed, Settled, Settlement, StoreError, TellSettled};
use super::keys::member;
use super::script::{Call, Kinds};
use super::{RedisStore, answer, outbox};

/// How often a settle reads a record again that changed under its hands.
pub(super) const TRIES: usize = 4;

impl RedisStore {
    pub(super) async fn try_settle(
        &self,
        batch: &[Settlement],
        tell: TellSettled<'_>,
    ) -> Vec<Result<Closed, StoreError>> {
        match self.records(batch.iter().map(|settlement| (settlement.account, &settlement.id))).await {
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            // Started together, so they go out together: one after the other on one connection.
            Ok(records) => {
                let settle = |(place, (settlement, record))| {
                    self.settle_one(settlement, record, move |closed| tell(place, closed))
                };
                join_all(batch.iter().zip(records).enumerate().map(settle)).await
            }
        }
    }

    async fn settle_one(
        &self,
        settlement: &Settlement,
        mut bytes: Option<Vec<u8>>,
        tell: impl Fn(&Closed) -> Option<String>,
    ) -> Result<Closed, StoreError> {
        let key = self.keys.record(settlement.account, &settlement.id);
        for _ in 0..TRIES {
            let stored = record::read(bytes.as_deref()).map_err(|_| StoreError::Format)?;
            let (settled, tombstone, corrections) = match step(settlement, &stored, &self.lifetimes) {
                Step::Answer(settled) => return Ok(settled.into()),
                Step::Replace(corrections) => (Settled::Replaced, vec![b'S'], corrections),
                Step::Book(corrections) => (Settled::Booked, vec![b'S'], corrections),
                Step::Refuse { attempt } => (Settled::Unknown, vec![b'T', attempt], Vec::new()),
            };
            // Before the event is there.
            self.announce(settlement.account).await;
            let mut closed = Closed { settled, held: stored.held_for(settlement), event: None };
            closed.event = tell(&closed);
            let event = closed.event.as_deref();
            let call = self.close(settlement, &bytes, &stored, tombstone, event, &corrections);
            let answer: Vec<u8> = self.patiently(|| self.scripts.settle.run(&self.connection, &call)).await?;
            match answer.as_slice() {
                b"D" => return Ok(closed),
                b"~" => {}
                answer => return Err(answer::failure(answer.first().copied())),
            }
            bytes = redis::cmd("GET").arg(&key).query_async(&mut self.connection.clone()).await?;
        }
        Err(StoreError::Contended)
    }

    fn close(
        &self,
        settlement: &Settlement,
        bytes: &Option<Vec<u8>>,
        stored: &Stored,
        tombstone: Vec<u8>,
        event: Option<&str>,
        corrections: &[Correction],
    ) -> Call {
        let account = settlement.account;
        let life = if tombstone == b"S" { self.lifetimes.settled } else { self.lifetimes.refused };
        let member = match stored {
            Stored::Open(record) => member(&settlement.id, record.model, Some(record.tokens())),
            _ => String::new(),
        };
        let mut call = Call {
            kinds: Kinds::default(),
            keys: vec![
                self.keys.record(account, &settlement.id),
                self.keys.open_holds(account),
                self.keys.outbox(account),
            ],
            arguments: vec![
                self.now(),
                bytes.clone().unwrap_or_default(),
                tombstone,
                ms(life).to_string().into_bytes(),
                member.into_bytes(),
                event.map(|line| outbox::keep(line, self.clock.now_ms())).unwrap_or_default(),
                ms(outbox::LIFE).to_string().into_bytes(),
            ],
        };
        for correction in corrections {
            call.kinds.add(answer::letter_of(&correction.meter));
            call.keys.push(self.keys.bucket(account, correction.meter.bucket));
            call.arguments.push(answer::correction(correction));
        }
        call
    }
}

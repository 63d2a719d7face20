use futures_util::future::join_all;

use super::super::lifetimes::ms;
use super::super::record;
use super::super::settlement::{Correction, Step, Stored, step};
use super::super::{Closed, Settled, Settlement, StoreError};
use super::keys::member;
use super::script::{Call, Kinds};
use super::{RedisStore, answer};

/// How often a settle reads a record again that changed under its hands.
pub(super) const TRIES: usize = 4;

impl RedisStore {
    pub(super) async fn try_settle(&self, batch: &[Settlement]) -> Vec<Result<Closed, StoreError>> {
        let mut reads = redis::pipe();
        for settlement in batch {
            reads.get(self.keys.record(settlement.account, &settlement.id));
        }
        let mut connection = self.connection.clone();
        let records: Result<Vec<Option<Vec<u8>>>, _> = reads.query_async(&mut connection).await;
        match records {
            Err(error) => {
                let error = StoreError::from(error);
                batch.iter().map(|_| Err(error.clone())).collect()
            }
            // Started together, so they go out together: one after the other on one connection.
            Ok(records) => {
                let settles =
                    batch.iter().zip(records).map(|(settlement, record)| self.settle_one(settlement, record));
                join_all(settles).await
            }
        }
    }

    async fn settle_one(
        &self,
        settlement: &Settlement,
        mut bytes: Option<Vec<u8>>,
    ) -> Result<Closed, StoreError> {
        let key = self.keys.record(settlement.account, &settlement.id);
        for _ in 0..TRIES {
            let stored = record::read(bytes.as_deref()).map_err(|_| StoreError::Format)?;
            let (settled, call) = match step(settlement, &stored, &self.lifetimes) {
                Step::Answer(settled) => return Ok(settled.into()),
                Step::Replace(corrections) => {
                    (Settled::Replaced, self.close(settlement, &bytes, &stored, b"S", &corrections))
                }
                Step::Book(corrections) => {
                    (Settled::Booked, self.close(settlement, &bytes, &stored, b"S", &corrections))
                }
                Step::Refuse { attempt } => {
                    (Settled::Unknown, self.close(settlement, &bytes, &stored, &[b'T', attempt], &[]))
                }
            };
            let answer: Vec<u8> = self.patiently(|| self.scripts.settle.run(&self.connection, &call)).await?;
            match answer.as_slice() {
                b"D" => return Ok(Closed { settled, held: stored.held() }),
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
        tombstone: &[u8],
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
            keys: vec![self.keys.record(account, &settlement.id), self.keys.open_holds(account)],
            arguments: vec![
                self.now(),
                bytes.clone().unwrap_or_default(),
                tombstone.to_vec(),
                ms(life).to_string().into_bytes(),
                member.into_bytes(),
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

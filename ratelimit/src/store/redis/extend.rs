use futures_util::future::join_all;

use super::super::codec::put_amount;
use super::super::extension::{Growth, growth};
use super::super::record::{self, Entry, Record};
use super::super::settlement::Stored;
use super::super::{Extended, Extension, StoreError};
use super::keys::member;
use super::script::{Call, Kinds};
use super::settle::TRIES;
use super::{RedisStore, answer};

impl RedisStore {
    pub(super) async fn try_extend(&self, batch: &[Extension]) -> Vec<Result<Extended, StoreError>> {
        match self.records(batch.iter().map(|extension| (extension.account, &extension.id))).await {
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            Ok(records) => {
                let extensions =
                    batch.iter().zip(records).map(|(extension, record)| self.extend_one(extension, record));
                join_all(extensions).await
            }
        }
    }

    async fn extend_one(
        &self,
        extension: &Extension,
        mut bytes: Option<Vec<u8>>,
    ) -> Result<Extended, StoreError> {
        let key = self.keys.record(extension.account, &extension.id);
        for _ in 0..TRIES {
            let stored = record::read(bytes.as_deref()).map_err(|_| StoreError::Format)?;
            let (Stored::Open(record), Some(read)) = (stored, &bytes) else { return Ok(Extended::Unknown) };
            let (output_tokens, charges) = match growth(&record, extension) {
                Growth::Nothing => return Ok(Extended::Held { output_tokens: record.output_tokens }),
                // An entry of this format does not go into a record of an older one.
                _ if !record::can_grow(read) => return Ok(Extended::Refused),
                Growth::TooMuch => return Ok(Extended::Refused),
                Growth::By { output_tokens, charges } => (output_tokens, charges),
            };
            let call = self.extend_call(extension, read, &record, output_tokens, &charges);
            let answer: Vec<u8> = self.patiently(|| self.scripts.extend.run(&self.connection, &call)).await?;
            match answer.as_slice() {
                b"D" => return Ok(Extended::Held { output_tokens }),
                b"R" => return Ok(Extended::Refused),
                b"~" => {}
                answer => return Err(answer::failure(answer.first().copied())),
            }
            bytes = redis::cmd("GET").arg(&key).query_async(&mut self.connection.clone()).await?;
        }
        Err(StoreError::Contended)
    }

    fn extend_call(
        &self,
        extension: &Extension,
        read: &[u8],
        record: &Record,
        output_tokens: u64,
        charges: &[Entry],
    ) -> Call {
        let Extension { account, id, .. } = extension;
        let mut output = Vec::new();
        put_amount(&mut output, output_tokens);
        let tokens = record.prompt_tokens.saturating_add(output_tokens);
        let mut call = Call {
            kinds: Kinds::default(),
            keys: vec![self.keys.record(*account, id), self.keys.open_holds(*account)],
            arguments: vec![
                self.now(),
                read.to_vec(),
                output,
                member(id, record.model, Some(record.tokens())).into_bytes(),
                member(id, record.model, Some(tokens)).into_bytes(),
            ],
        };
        for charge in charges {
            call.kinds.add(answer::letter_of(&charge.meter));
            call.keys.push(self.keys.bucket(*account, charge.meter.bucket));
            call.arguments.push(answer::addition(charge.amount, [0, 0, 1], charge.known_part()));
        }
        call
    }
}

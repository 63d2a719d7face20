use tokengate_api::{ExtendItem, ExtendResponse, ExtendResult, ExtendStatus};
use tracing::warn;

use super::{Quota, STORE_TIME};
use crate::quiet::Quiet;
use crate::store::{Extended, Extension, StoreError};
use crate::tag::Tag;

static FAILED: Quiet = Quiet::new();

impl Quota {
    /// Holds more output, or renews leases, one result per item in the same order. Sending a batch again is
    /// harmless.
    ///
    /// # Errors
    /// The store failed: the whole batch should come again. One item whose state cannot be read is refused, and keeps
    /// no other waiting.
    pub async fn extend(&self, items: &[ExtendItem]) -> Result<ExtendResponse, StoreError> {
        let extensions: Vec<_> = items.iter().map(extension).collect();
        let batch: Vec<_> = extensions.iter().flatten().cloned().collect();
        let answers = self.store.extend(&batch, STORE_TIME).await;
        let mut extended = Vec::with_capacity(answers.len());
        for answer in answers {
            if let Err(error) = &answer
                && let Some(unsaid) = FAILED.say()
            {
                warn!(%error, items = items.len(), unsaid, "an extend failed");
            }
            extended.push(match answer {
                Err(StoreError::Format) => Extended::Refused,
                answer => answer?,
            });
        }
        let mut answers = extended.into_iter();
        let result = |(item, extension): (&ExtendItem, &Option<Extension>)| {
            let extended = extension.as_ref().and_then(|_| answers.next()).unwrap_or(Extended::Unknown);
            let (status, hold_output_tokens) = match extended {
                Extended::Held { output_tokens } => (ExtendStatus::Allow, Some(output_tokens)),
                Extended::Refused => (ExtendStatus::Deny, None),
                Extended::Unknown => (ExtendStatus::Unknown, None),
            };
            ExtendResult { id: item.id.clone(), status, hold_output_tokens }
        };
        Ok(ExtendResponse {
            results: items.iter().zip(&extensions).map(result).collect(),
            policy_version: self.policy().version.clone(),
        })
    }
}

/// Nothing when the account is none of ours: then there is nothing to look for.
fn extension(item: &ExtendItem) -> Option<Extension> {
    Some(Extension {
        id: item.id.clone(),
        account: Tag::parse(&item.account)?,
        output_tokens: item.hold_output_tokens,
        lease: item.lease,
    })
}

use tokengate_api::ReservationId;

use super::super::StoreError;
use super::RedisStore;
use crate::tag::Tag;

impl RedisStore {
    /// What is stored under ids, as far as this instance knows; what it does not know is read at once. Whoever
    /// changes a record by it has the script compare.
    pub(super) async fn records(
        &self,
        names: impl Iterator<Item = (Tag, &ReservationId)>,
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let (mut records, mut unknown) = (Vec::new(), Vec::new());
        let mut reads = redis::pipe();
        for (place, (account, id)) in names.enumerate() {
            let record = self.fresh.take(account, id);
            if record.is_none() {
                reads.get(self.keys.record(account, id));
                unknown.push(place);
            }
            records.push(record);
        }
        if !unknown.is_empty() {
            let read: Vec<Option<Vec<u8>>> = reads.query_async(&mut self.connection.clone()).await?;
            for (place, record) in unknown.into_iter().zip(read) {
                if let Some(unread) = records.get_mut(place) {
                    *unread = record;
                }
            }
        }
        Ok(records)
    }
}

//! Records that this instance has written, so that it need not read them again to settle them.
//!
//! Only a shortcut: the scripts compare with what is stored, and say so when it is another one by now.

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokengate_api::ReservationId;

use crate::tag::Tag;

/// Bytes of memory, about. Beyond it records are read again.
const CAPACITY: u64 = 32 << 20;
/// What an entry takes besides its record.
const OVERHEAD: u64 = 160;
const USUAL: u64 = 512;

type Name = (Tag, ReservationId);

pub struct Fresh(Cache<Name, Vec<u8>, Weight>);

#[derive(Clone)]
struct Weight;

impl Weighter<Name, Vec<u8>> for Weight {
    fn weight(&self, _: &Name, record: &Vec<u8>) -> u64 {
        u64::try_from(record.len()).unwrap_or(u64::MAX).saturating_add(OVERHEAD)
    }
}

impl Default for Fresh {
    fn default() -> Self {
        let records = usize::try_from(CAPACITY / USUAL).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(records, CAPACITY, Weight))
    }
}

impl Fresh {
    pub fn put(&self, account: Tag, id: &ReservationId, record: &[u8]) {
        self.0.insert((account, id.clone()), record.to_vec());
    }

    /// The record as it was written. It is asked for once: whoever asks is about to change it.
    pub fn take(&self, account: Tag, id: &ReservationId) -> Option<Vec<u8>> {
        self.0.remove(&(account, id.clone())).map(|(_, record)| record)
    }
}

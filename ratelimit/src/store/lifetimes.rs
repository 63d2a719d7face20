use std::time::Duration;

/// How long the store remembers a reservation. Independent of the length of any window.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// An open hold can be corrected that long; then its charge stays.
    pub record: Duration,
    /// A settled reservation answers repeats that long.
    pub settled: Duration,
    /// A close that came before its reserve is remembered that long.
    pub refused: Duration,
    /// A settle that waited longer in an outbox is refused.
    pub outbox: Duration,
}

const MINUTE: Duration = Duration::from_secs(60);
const MARGIN: Duration = MINUTE.saturating_mul(5);

impl Default for Lifetimes {
    fn default() -> Self {
        let longest_request = MINUTE.saturating_mul(60);
        let outbox = MINUTE.saturating_mul(5);
        Self {
            record: longest_request.saturating_add(outbox).saturating_add(MARGIN),
            settled: outbox.saturating_add(MARGIN),
            refused: MINUTE,
            outbox,
        }
    }
}

impl Lifetimes {
    /// Usage without a hold is charged only while an open record would still be there: then its absence
    /// proves that nothing was held.
    pub fn may_book(&self, age_ms: u64) -> bool {
        age_ms < ms(self.record.saturating_sub(MARGIN))
    }

    pub fn in_time(&self, queued_ms: u64) -> bool {
        queued_ms < ms(self.outbox)
    }
}

pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

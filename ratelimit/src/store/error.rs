use std::time::Duration;

use crate::limits::Unusable;

/// The store gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the store did not answer in time")]
    Timeout,
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    #[error("the store refused the command: {0}")]
    Refused(String),
    #[error("the store is a {0}, which nothing can be counted on")]
    Unfit(&'static str),
    #[error("the store's clock and this machine's differ by more than {} s", MAX_CLOCK_DIFFERENCE.as_secs())]
    Clock,
    #[error("the store holds something this version cannot read")]
    Format,
    #[error("the reservation changed again and again while it was settled")]
    Contended,
    #[error("the calendar boundaries do not contain the store's time")]
    Boundary,
}

impl StoreError {
    /// The command may have been carried out all the same.
    pub fn indeterminate(&self) -> bool {
        matches!(self, Self::Timeout | Self::Unreachable(_) | Self::Refused(_))
    }
}

impl From<Unusable> for StoreError {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Foreign => Self::Format,
            Unusable::Boundary => Self::Boundary,
        }
    }
}

/// Beyond this the windows of two instances would not be the same.
pub const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(30);

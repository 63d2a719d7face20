//! One behavioural suite over every store, with the clock in the test's hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agreement;
mod balances;
mod concurrent;
mod connections;
mod conservation;
mod deciding;
mod extending;
mod failover;
mod faults;
pub use faults::eventually;
mod fixture;
mod holding;
mod load;
mod lost_answers;
mod mutations;
mod other_content;
mod properties;
pub mod proxy;
pub mod redis_server;
mod refusing_servers;
mod repeats;
mod reserving;
mod settling;
mod snapshot;
mod sweeping;
mod wrong_clock;

pub use fixture::*;
pub use snapshot::Snapshot;

/// Runs each function over memory and over a Redis of its own.
macro_rules! over_both_stores {
    ($suite:ident: $($name:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$suite::$name($crate::store::tests::Fixture::memory()).await;
            })+
        }
        mod redis {
            $(#[tokio::test]
            async fn $name() {
                super::$suite::$name($crate::store::tests::Fixture::redis().await).await;
            })+
        }
    };
}
pub(crate) use over_both_stores;

//! The quota service: decides whether a request fits every limit of its tenant, holds what it may cost,
//! and replaces the hold by what it did cost.
//!
//! A reader follows a request through `http → quota → request_plan → store`. `policy` reads the file,
//! `limits` is the arithmetic that every store must agree with.

pub mod admin;
pub mod cli;
pub mod clock;
pub mod events;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod openapi;
pub mod overrides;
pub mod policy;
pub mod quiet;
pub mod quota;
pub mod release_queue;
pub mod reload;
pub mod request_plan;
pub mod store;
pub mod subject;
pub mod tag;
pub mod telemetry;

/// Version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// First digits of the commit the binary was built from, or `unknown`.
pub const GIT_HASH: &str = env!("TOKENGATE_GIT_HASH");

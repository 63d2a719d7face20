//! The wire between the filter and the quota service: JSON bodies of the `/v1/*` calls.
//!
//! Both sides compile these types, so a field cannot mean two things. Evolution is additive: an unknown
//! field is ignored, a new field has a default. Token amounts count tokens, times are milliseconds.

mod extend;
mod id;
mod identify;
pub mod model_name;
mod models;
mod reason;
mod reserve;
mod settle;
pub mod whole;

pub use extend::{ExtendItem, ExtendResponse, ExtendResult, ExtendStatus};
pub use id::{InvalidId, ReservationId};
pub use identify::{IdentifyRequest, IdentifyResponse};
pub use models::{MissingOutputLimit, ModelInfo, ModelList, OutputLimit, UsageChunk};
pub use reason::Reason;
pub use reserve::{Decision, Grant, LimitState, Metric, ReserveRequest, ReserveResponse, VerifiedIdentity};
pub use settle::{Outcome, SettleItem, SettleResponse, SettleResult, SettleStatus, Usage};

/// Path of the model list, `GET`.
pub const MODELS_PATH: &str = "/v1/models";
/// Path of the identify call, `POST` with an [`IdentifyRequest`].
pub const IDENTIFY_PATH: &str = "/v1/identify";
/// Path of the reserve call, `POST` with a [`ReserveRequest`].
pub const RESERVE_PATH: &str = "/v1/reserve";
/// Path of the settle call, `POST` with an array of [`SettleItem`].
pub const SETTLE_PATH: &str = "/v1/settle";
/// Path of the extend call, `POST` with an array of [`ExtendItem`].
pub const EXTEND_PATH: &str = "/v1/extend";
/// The most other models that a request may name.
pub const MAX_OTHER_MODELS: usize = 8;
/// The largest number of items an extend or a settle call may carry.
pub const MAX_SETTLE_ITEMS: usize = 256;

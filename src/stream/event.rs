//! What goes into a stream and what comes out of it.

use tokengate_api::{
    ExtendItem, ExtendStatus, IdentifyRequest, ReservationId, ReserveRequest, ReserveResponse, SettleItem,
};

use super::charge::Ending;
use super::report::{LogField, Measure};
use crate::callers::{CallerId, Standing};
use crate::config::Config;
use crate::dialect::refusal::LocalReply;
use crate::edits::Edits;
use crate::headers::{Coding, Headers};
use crate::identity::Property;
use crate::models::Models;

/// What a step may look at beside its event.
pub struct Env<'a> {
    pub config: &'a Config,
    pub models: &'a Models,
    /// Milliseconds of one clock. Counting takes time, so a step asks when it needs to know.
    pub now_ms: &'a dyn Fn() -> u64,
    /// Makes a reservation id; `None` when there is no randomness.
    pub new_id: &'a dyn Fn() -> Option<ReservationId>,
    /// What the proxy itself knows of the request, by the path of the attribute.
    pub property: Property<'a>,
    /// What the quota service has said of a caller.
    pub standing: &'a dyn Fn(&CallerId) -> Standing,
}

pub enum Event<'a> {
    RequestHeaders {
        headers: &'a Headers,
        end_of_stream: bool,
    },
    /// So many bytes of the body are held.
    RequestBody {
        length: usize,
    },
    /// Bytes of the body from [`Stream::counts_from`](super::Stream::counts_from) on. None where there must
    /// be some: the body cannot be read. For [`Stream::counts_kept`](super::Stream::counts_kept) they are ignored.
    RequestPiece {
        bytes: &'a [u8],
    },
    /// The body is complete, by its own end or by trailers.
    RequestEnd {
        body: &'a [u8],
    },
    /// Bytes of the body have come, and the proxy does not show them: it lacks the setting by which a
    /// filter that holds the headers sees the body.
    BodyWithheld,
    /// [`Env::models`] has the list that [`Effect::AwaitModels`] waits for.
    ModelsKnown,
    /// It did not come in time.
    ModelsFailed,
    /// The answer to [`Effect::Identify`].
    Identified(Standing),
    IdentifyFailed,
    ReserveAnswer(ReserveResponse),
    ReserveFailed(Failure),
    /// [`Effect::RewriteBody`] could not be done.
    RewriteFailed,
    ResponseHead(ResponseHead),
    ResponseBody {
        chunk: &'a [u8],
        is_last: bool,
    },
    /// The answer to [`Effect::Extend`].
    Extended {
        status: ExtendStatus,
        /// Output tokens held in all, after an `allow`.
        held: Option<u64>,
    },
    /// What was written last is on its way: after [`Effect::CutSoon`].
    Cut,
    /// The last byte of the answer was seen. The client may not have it for long.
    ResponseEnd(Ending),
    /// The stream is over, whatever became of it.
    End(Ending),
}

/// Why a reserve has no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Refused or reset: the service did not answer, and may be asked once more.
    Connection,
    /// The proxy's timer ran out. It counts from the start of its event loop's round, so that work on the
    /// worker can make it early; then, too, the service may be asked once more.
    Deadline,
    /// What came was no answer.
    Unusable,
}

impl Failure {
    /// Of a call, by whether the service itself has answered and by its status, which is missing after a reset;
    /// none where there is an answer to read.
    pub fn of_call(is_from_service: bool, status: Option<&str>) -> Option<Self> {
        match status {
            // Reset after the headers or before them; the proxy's own 503 is a failed connection.
            None => Some(Self::Connection),
            Some("503") if !is_from_service => Some(Self::Connection),
            Some("504") if !is_from_service => Some(Self::Deadline),
            Some("200") if is_from_service => None,
            Some(_) => Some(Self::Unusable),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: u16,
    /// The provider answered, not the proxy or a filter.
    pub from_provider: bool,
    pub coding: Coding,
    /// The provider's own rate-limit headers.
    pub rate_limit_headers: Vec<String>,
}

/// How a held body is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// In the plain body.
    pub edits: Edits,
    pub packing: Packing,
    /// Set content-length, for there was one and the headers can still be changed.
    pub fix_length: bool,
}

/// What is around the plain body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Plain,
    /// Gzip, which goes with its header.
    Unpack,
    /// Gzip, which stays: its header has gone on already.
    Repack,
}

#[derive(Debug, PartialEq)]
pub enum Effect {
    RemoveRequestHeader(String),
    SetRequestHeader(&'static str, String),
    /// [`Event::ModelsKnown`] or [`Event::ModelsFailed`] must come.
    AwaitModels,
    /// Asks whether a caller is known; [`Event::Identified`] or [`Event::IdentifyFailed`] must come.
    Identify {
        caller: CallerId,
        request: Box<IdentifyRequest>,
    },
    /// What the service has said of a caller.
    LearnCaller {
        caller: CallerId,
        is_known: bool,
        policy_version: String,
    },
    Reserve {
        request: Box<ReserveRequest>,
        timeout_ms: u32,
    },
    /// Rewrites the held body. [`Event::RewriteFailed`] when it cannot be done; then no later effect of the
    /// step may be carried out.
    RewriteBody(Rewrite),
    Resume,
    Reply(LocalReply),
    RemoveResponseHeader(String),
    SetResponseHeader(&'static str, String),
    ReplaceResponseBody(Vec<u8>),
    Measure(Measure),
    /// A text for the access log, in the place of an earlier one.
    Log(LogField, String),
    /// Asks for more to be held.
    Extend(ExtendItem),
    /// The reservation holds slots whose lease has to be renewed until the stream is over.
    KeepLease {
        id: ReservationId,
        account: String,
        lease_ms: u64,
    },
    /// [`Event::Cut`] must come when this callback is over.
    CutSoon,
    /// Ends the answer at once, in both directions.
    CutResponse,
    /// Queues the settle of a reserve that was sent at this time.
    Settle {
        item: Box<SettleItem>,
        reserved_at: u64,
        /// The body of a reserve that was answered `allow`, should the service have forgotten it.
        reserve: Option<Box<ReserveRequest>>,
        /// It frees a slot, or budget that the next request of this caller may need at once.
        frees: Option<CallerId>,
    },
    /// The service has a newer policy than our model list.
    RefreshModels,
}

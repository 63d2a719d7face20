//! Host calls that cannot panic.
//!
//! The SDK's own wrappers panic on a status they do not expect and on header values that are not UTF-8; a
//! panic stops the whole worker's VM with all its streams. These give `None` or `false` instead. Only
//! `proxy_http_call` stays with the SDK, which must know every call's token.

use std::ptr::{null, null_mut};
use std::time::Duration;

use crate::headers::Headers;

const OK: u32 = 0;

#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Map {
    Request = 0,
    Response = 2,
    CallResponse = 6,
}

#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Buffer {
    RequestBody = 0,
    ResponseBody = 1,
    CallResponseBody = 4,
    PluginConfiguration = 7,
}

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_remove_header_map_value(map: u32, key: *const u8, key_size: usize) -> u32;
    fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_set_buffer_bytes(
        buffer: u32,
        start: usize,
        size: usize,
        data: *const u8,
        data_size: usize,
    ) -> u32;
    fn proxy_get_property(path: *const u8, path_size: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, value_size: usize) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_close_stream(stream: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    fn proxy_record_metric(id: u32, value: u64) -> u32;
    fn proxy_done() -> u32;
}

unsafe extern "C" {
    /// The SDK's own callback, which it exports to the host.
    fn proxy_on_queue_ready(context: u32, queue: u32);
}

/// Lets the root context run, within a callback of a stream's: the answers to the calls that it makes come to it,
/// whatever becomes of the stream. Not to be called while the root context runs.
pub fn wake(root: u32) {
    // SAFETY: no pointers. The SDK has borrowed its streams now, and borrows its roots for this.
    unsafe { proxy_on_queue_ready(root, 0) }
}

/// Takes over memory that the host filled. It asked the SDK's `proxy_on_memory_allocate` for it, which
/// gives a `Vec<u8>` of exactly this size away.
fn take(data: *mut u8, size: usize) -> Vec<u8> {
    if data.is_null() {
        return Vec::new();
    }
    // SAFETY: `data` came from a boxed slice of `size` bytes that nobody else owns, see above.
    unsafe { Vec::from_raw_parts(data, size, size) }
}

fn taken(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Option<Vec<u8>> {
    let (mut data, mut size) = (null_mut(), 0);
    let status = call(&mut data, &mut size);
    let bytes = take(data, size);
    (status == OK).then_some(bytes)
}

pub fn headers(map: Map) -> Headers {
    // SAFETY: both pointers are valid for writing during the call.
    let bytes = taken(|data, size| unsafe { proxy_get_header_map_pairs(map as u32, data, size) });
    Headers::new(bytes.and_then(|bytes| parse_pairs(&bytes)).unwrap_or_default())
}

/// Count, then the sizes of all names and values, then each with a NUL behind it.
fn parse_pairs(bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let word = |at: usize| {
        let word = bytes.get(at..at.checked_add(4)?)?;
        usize::try_from(u32::from_le_bytes(word.try_into().ok()?)).ok()
    };
    let count = word(0)?;
    let mut at = count.checked_mul(8)?.checked_add(4)?;
    let mut next = |size: usize| {
        let text = bytes.get(at..at.checked_add(size)?)?.to_vec();
        at += size + 1;
        Some(text)
    };
    (0..count).map(|n| Some((next(word(4 + 8 * n)?)?, next(word(8 + 8 * n)?)?))).collect()
}

fn serialize_pairs(pairs: &[(&str, &str)]) -> Vec<u8> {
    let word = |out: &mut Vec<u8>, n: usize| out.extend(u32::try_from(n).unwrap_or(0).to_le_bytes());
    let mut out = Vec::new();
    word(&mut out, pairs.len());
    for (name, value) in pairs {
        word(&mut out, name.len());
        word(&mut out, value.len());
    }
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        out.extend_from_slice(text.as_bytes());
        out.push(0);
    }
    out
}

pub fn set_header(map: Map, name: &str, value: &[u8]) -> bool {
    // SAFETY: the slices outlive the call.
    let status = unsafe {
        proxy_replace_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    };
    status == OK
}

/// Removes every value of a header.
pub fn remove_header(map: Map, name: &str) {
    // SAFETY: the slice outlives the call. That there was none is no failure.
    let _ = unsafe { proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) };
}

/// At most `size` bytes from the start of a buffer.
pub fn buffer(buffer: Buffer, size: usize) -> Option<Vec<u8>> {
    buffer_from(buffer, 0, size)
}

/// At most `size` bytes of a buffer from `start` on.
pub fn buffer_from(buffer: Buffer, start: usize, size: usize) -> Option<Vec<u8>> {
    // SAFETY: both pointers are valid for writing during the call.
    taken(|data, length| unsafe { proxy_get_buffer_bytes(buffer as u32, start, size, data, length) })
}

/// Replaces the first `size` bytes of a buffer.
pub fn replace_prefix(buffer: Buffer, size: usize, bytes: &[u8]) -> bool {
    // SAFETY: the slice outlives the call.
    let status = unsafe { proxy_set_buffer_bytes(buffer as u32, 0, size, bytes.as_ptr(), bytes.len()) };
    status == OK
}

pub fn property(path: &[&str]) -> Option<Vec<u8>> {
    let path = path.join("\0");
    // SAFETY: the slice outlives the call; both pointers are valid for writing during it.
    taken(|data, size| unsafe { proxy_get_property(path.as_ptr(), path.len(), data, size) })
}

/// A property that Envoy gives as a 64-bit integer.
pub fn integer_property(path: &[&str]) -> Option<i64> {
    property(path)?.try_into().ok().map(i64::from_le_bytes)
}

/// Sets a text of the stream that access logs show as `%FILTER_STATE(wasm.<name>:PLAIN)%`.
pub fn set_filter_state(name: &str, value: &str) {
    // SAFETY: the slices outlive the call. Where the host refuses it the log lacks a text.
    let _ = unsafe { proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) };
}

pub fn resume_request() -> bool {
    // SAFETY: no pointers.
    unsafe { proxy_continue_stream(0) == OK }
}

/// Cuts the answer off, towards the client and towards upstream.
pub fn reset_response() -> bool {
    // SAFETY: no pointers.
    unsafe { proxy_close_stream(1) == OK }
}

/// Answers the stream. `details` become its response code details.
pub fn send_local_response(status: u16, details: &str, headers: &[(&str, &str)], body: &[u8]) -> bool {
    let headers = serialize_pairs(headers);
    // SAFETY: all slices outlive the call.
    let status = unsafe {
        proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            if body.is_empty() { null() } else { body.as_ptr() },
            body.len(),
            headers.as_ptr(),
            headers.len(),
            -1,
        )
    };
    status == OK
}

/// Milliseconds of the host's clock.
pub fn now_ms() -> u64 {
    now_us() / 1_000
}

pub fn now_us() -> u64 {
    let mut nanoseconds = 0;
    // SAFETY: the pointer is valid for writing during the call.
    match unsafe { proxy_get_current_time_nanoseconds(&mut nanoseconds) } {
        OK => nanoseconds / 1_000,
        _ => 0,
    }
}

pub fn set_tick_period(ms: u32) -> bool {
    // SAFETY: no pointers.
    unsafe { proxy_set_tick_period_milliseconds(ms) == OK }
}

/// Makes the following host calls speak of this context.
pub fn set_effective_context(context: u32) -> bool {
    // SAFETY: no pointers.
    unsafe { proxy_set_effective_context(context) == OK }
}

#[derive(Clone, Copy)]
#[repr(u32)]
pub enum MetricKind {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

pub fn define_metric(kind: MetricKind, name: &str) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the slice outlives the call; the pointer is valid for writing during it.
    let status = unsafe { proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &mut id) };
    (status == OK).then_some(id)
}

/// Adds to a counter or gauge. The host refuses to add nothing, and to take from a counter.
pub fn increment(id: u32, amount: i64) {
    if amount != 0 {
        // SAFETY: no pointers.
        let _ = unsafe { proxy_increment_metric(id, amount) };
    }
}

/// Puts a value into a histogram.
pub fn record(id: u32, value: u64) {
    // SAFETY: no pointers.
    let _ = unsafe { proxy_record_metric(id, value) };
}

/// Ends a root context whose `on_done` said to wait.
pub fn done() {
    // SAFETY: no pointers. Outside of its time the host refuses it, which changes nothing.
    let _ = unsafe { proxy_done() };
}

/// Sends an HTTP call; `None` when the host would not take it. The answer comes to the context whose callback
/// the SDK runs now: only the root makes calls, for it is still there when they are answered.
pub fn call(cluster: &str, headers: &[(&str, &str)], body: Option<&[u8]>, timeout_ms: u32) -> Option<u32> {
    let timeout = Duration::from_millis(u64::from(timeout_ms.max(1)));
    proxy_wasm::hostcalls::dispatch_http_call(cluster, headers.to_vec(), body, Vec::new(), timeout).ok()
}

/// Bytes of the request that Envoy has received, those of the headers as they are now included.
pub fn received() -> Option<i64> {
    integer_property(&["request", "total_size"])
}

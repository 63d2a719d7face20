//! Pure arithmetic of the algorithms: the specification that every store is tested against.

pub mod fixed_window;

/// The largest amount that is counted exactly everywhere (Lua numbers are doubles): 2^52.
pub const MAX_AMOUNT: u64 = 1 << 52;

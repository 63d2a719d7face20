//! JSON as the filter needs it: requests whole, with the place of every member; answers in pieces.

mod object;
pub mod scan;
mod unescape;

pub use object::{Member, elements, members, number, text};

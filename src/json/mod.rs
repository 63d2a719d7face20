//! JSON as the filter needs it: requests whole, with the place of every member, and in pieces, as answers are.

mod object;
pub mod scan;
mod unescape;
pub mod walk;

pub use object::{Member, elements, members, number, text};

//! JSON as the filter needs it: requests whole, with the place of every member, and in pieces, as answers are.

mod name;
mod object;
pub mod scan;
mod unescape;
pub mod walk;

pub use object::{Member, elements, is_array_of_objects, members, members_named, number, text};

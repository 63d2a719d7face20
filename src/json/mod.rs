//! JSON as the filter needs it: requests whole, with the place of every member, and in pieces, as answers are.

mod binary;
mod fold;
mod name;
mod object;
pub mod scan;
mod unescape;
pub mod walk;

pub use binary::Binary;
pub use fold::{Meant, meant};
pub use object::{
    Fault, Member, Named, elements, first_elements, is_array_of_objects, members, members_named, number, text,
};

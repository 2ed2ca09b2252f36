//! The text of a message: how it is made from a row, and what it will cost.

pub mod segments;
pub mod smart;
pub mod template;

//! The text of a message: how it is made from a row, what it will cost, and how it is shown.

mod bounds;
pub mod content;
mod elapsed;
mod printable;
pub mod segments;
pub mod smart;
pub mod spreadsheet;
pub mod template;

pub use elapsed::duration;
pub use printable::{is_printable, printable, printable_json, printable_line};

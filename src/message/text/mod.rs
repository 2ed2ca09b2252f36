//! The text of a message: rendered from a template, checked, counted in segments. Also formats text for people.

mod bounds;
pub mod content;
mod display;
mod hinted;
mod masking;
pub mod names;
pub mod segments;
pub mod smart;
pub mod spreadsheet;
mod suggest;
pub mod template;

pub use display::{
    ago, counted, duration, is_printable, listed, messages, printable, printable_json,
    printable_line, shell_word,
};
pub use hinted::Hinted;
pub use masking::{mask_numbers, mask_values};
pub use suggest::{closest, did_you_mean};

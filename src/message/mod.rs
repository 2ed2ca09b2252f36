//! The types that all modules share: messages, phones, texts, rates, prices, instants. None of them does I/O.

pub mod activity;
pub mod age;
pub mod budget;
pub(crate) mod defect;
pub mod event;
pub mod instant;
pub mod phone;
pub mod prices;
pub mod rate;
pub mod receipt;
pub mod secret;
pub mod sms;
pub mod text;
pub mod window;

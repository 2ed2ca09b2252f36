//! The types that all crates share: messages, phones, texts, routes, rates, prices, instants. None of them does I/O.

pub mod activity;
pub mod age;
pub mod budget;
pub mod defect;
pub mod event;
pub mod instant;
pub mod phone;
pub mod prices;
pub mod rate;
pub mod receipt;
pub mod route;
pub mod secret;
pub mod sms;
pub mod text;
pub mod window;

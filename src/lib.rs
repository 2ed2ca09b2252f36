//! smsq sends a campaign of text messages from a list, through any SMS HTTP API, and does not lose,
//! repeat or hurry a message while doing so. This page is the map; every module tells its own part.
//!
//! The life of a message: an import or another program's `INSERT` makes it *ready*. A worker's clerk
//! gives it a moment within the limits and claims it, in one committed transaction: it is *sending*,
//! and its request may start. What the provider answers settles it: *sent* (a row of the ledger),
//! *failed* (with a class, a code and a reason), *ready* again at a later moment, or, when nobody can
//! know, *unknown*. At every commit it stands in exactly one of these places.
//!
//! - [`sms`]: the words everything speaks in: message, outcome, class, instant
//! - [`phone`], [`rate`], [`window`], [`text`]: numbers in E.164; limits; hours and time zones;
//!   placeholders and segments
//! - [`import`]: from a file to the queue
//! - [`store`]: the database, and the only place that knows SQL
//! - [`provider`]: a message as an HTTP request, an answer as an outcome; the only HTTP client
//! - [`sender`]: permit, claim, send, settle; pace, retries, outages, leases
//! - [`report`]: who was reached, who was not, and why
//! - [`sandbox`]: the practice gateway
//! - [`atomic_file`]: output files that appear complete or not at all
//! - [`cli`], [`commands`], [`config`], [`console`], [`exit`], [`logging`]: the program around them

pub mod atomic_file;
pub mod cli;
pub mod commands;
pub mod config;
pub mod console;
pub mod exit;
pub mod import;
pub mod limit;
pub mod logging;
pub mod phone;
mod process;
pub mod provider;
pub mod queue;
pub mod rate;
pub mod report;
pub mod sandbox;
pub mod sender;
pub mod sms;
pub mod store;
pub mod text;
pub mod window;

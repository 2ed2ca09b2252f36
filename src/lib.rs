//! smsq sends a campaign of text messages from a list, through any SMS HTTP API. It loses no message, sends none
//! twice, and respects rate limits.
//!
//! An import, or another program's `INSERT`, creates a *ready* message. A worker gets a permit from the rate
//! limits, claims the message (*sending*) in a committed transaction, and starts the request. The provider's
//! response settles it: *sent*, *failed* (with class, code and reason), *ready* again at a later time, or
//! *unknown* if it may have been accepted. At every commit it is in exactly one of these places.
//!
//! - [`sms`]: the types that all modules share: message, outcome, class, timestamp
//! - [`instant`]: instants in microseconds on two clocks
//! - [`receipt`]: what a provider reports about a message on its way to the phone
//! - [`activity`]: what workers publish while they send
//! - [`event`]: what other programs want to know
//! - [`secret`]: settings that are never shown
//! - [`phone`], [`rate`], [`window`], [`text`]: numbers in E.164; rate limits; sending windows and time zones;
//!   templates and segments
//! - [`senders`]: which of a provider's senders sends to a phone
//! - [`import`]: from a file to the queue
//! - [`store`]: the database, and the only module with SQL
//! - [`provider`]: HTTP requests for messages, outcomes from responses; their HTTP client
//! - [`sender`]: permits, claims, requests, settlements; retries, outages, leases
//! - [`service_manager`]: reports to systemd
//! - [`metrics`]: counters and gauges for Prometheus
//! - [`hooks`]: delivers events to other programs
//! - [`operations`]: what people change, by command, page or API
//! - [`report`]: who was reached, who was not, and why
//! - [`sandbox`]: the practice gateway
//! - [`prove`]: rounds of faults, and the judge of what happened
//! - [`serve`]: the server: page, API, receipts by webhook, metrics
//! - [`jobs`]: long work that blocks a thread, and the stop of the process that ends it
//! - [`atomic_file`]: output files that appear complete or not at all
//! - [`cli`], [`commands`], [`config`], [`console`], [`exit`], [`logging`]: the command-line program

pub mod activity;
pub mod age;
pub mod atomic_file;
mod broken;
pub mod budget;
pub mod cli;
pub mod commands;
pub mod config;
pub mod console;
pub mod event;
pub mod exit;
pub mod hooks;

pub mod import;
pub mod instant;
pub mod jobs;
pub mod limit;
pub mod logging;
pub mod metrics;
pub mod operations;
pub mod phone;
pub mod prices;
mod process;
pub mod prove;
pub mod provider;
pub mod queue;
pub mod rate;
pub mod receipt;
pub mod receipts;
pub mod report;
pub mod route;
pub mod sandbox;
pub mod secret;
pub mod sender;
pub mod senders;
pub mod serve;
pub mod service_manager;
pub mod sms;
pub mod store;
pub mod text;
pub mod window;

//! smsq sends a campaign of text messages from a list, through any SMS HTTP API. It loses no message, sends none
//! twice, and respects rate limits.
//!
//! An import, or another program's `INSERT`, creates a *ready* message. A worker gets a permit from the rate
//! limits, claims the message (*sending*) in a committed transaction, and starts the request. The provider's
//! response settles it: *sent*, *failed* (with class, code and reason), *ready* again at a later time, or
//! *unknown* if it may have been accepted. At every commit it is in exactly one of these places.
//!
//! - [`message`]: what all modules share: messages, phones, texts, rates, prices, instants
//! - [`process`]: what the process prints, how it ends, and the work that blocks its threads
//! - [`route`]: which provider sends to a phone, and by which of its senders
//! - [`limit`]: the arithmetic of rate limits
//! - [`lifecycle`]: what happens to a message: pure decisions
//! - [`store`]: the database, and the only module with SQL
//! - [`provider`]: HTTP requests for messages, outcomes from responses; their HTTP client
//! - [`import`]: from a file to the queue
//! - [`sender`]: permits, claims, requests, settlements; retries, outages, leases
//! - [`receipts`]: fetches and applies delivery receipts
//! - [`hooks`]: delivers events to other programs
//! - [`operations`]: what people change, by command, page or API
//! - [`report`]: who was reached, who was not, and why
//! - [`metrics`]: counters and gauges for Prometheus
//! - [`serve`]: the server: page, API, receipts by webhook, metrics
//! - [`prove`]: rounds of faults, and the judge of what happened
//! - [`sandbox`]: the practice gateway
//! - [`cli`], [`commands`], [`config`]: the command-line program

pub mod cli;
pub mod commands;
pub mod config;
pub mod hooks;
pub mod import;
pub mod lifecycle;
pub mod limit;
pub mod message;
pub mod metrics;
pub mod operations;
pub mod process;
pub mod prove;
pub mod provider;
pub mod receipts;
pub mod report;
pub mod route;
pub mod sandbox;
pub mod sender;
pub mod serve;
pub mod store;

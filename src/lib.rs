//! smsq sends a campaign of text messages from a list, through any SMS HTTP API. It loses no message, sends none
//! twice, and respects rate limits.
//!
//! An import, or another program's `INSERT`, creates a *ready* message. A worker gets a permit from the rate
//! limits, claims the message (*sending*) in a committed transaction, and starts the request. The provider's
//! response settles it: *sent*, *failed* (with class, code and reason), *ready* again at a later time, or
//! *unknown* if it may have been accepted. At every commit it is in exactly one of these places.
//!
//! The program consists of the modules [`cli`], [`commands`] and [`config`] here and of these crates, from the bottom
//! up:
//!
//! - [`smsq_message`]: what all crates share: messages, phones, texts, routes, rates, prices, instants
//! - [`smsq_process`]: what the process prints, how it ends, and the work that blocks its threads
//! - `smsq_limit`: the arithmetic of rate limits
//! - [`smsq_lifecycle`]: what happens to a message: pure decisions
//! - [`smsq_store`]: the database, and the only crate with SQL
//! - [`smsq_provider`]: HTTP requests for messages, outcomes from responses; their HTTP client
//! - [`smsq_import`]: from a file to the queue
//! - [`smsq_metrics`]: counters and gauges for Prometheus
//! - [`smsq_receipts`]: fetches and applies delivery receipts
//! - [`smsq_sender`]: permits, claims, requests, settlements; retries, outages, leases
//! - [`smsq_hooks`]: delivers events to other programs
//! - [`smsq_operations`]: what people change, by command, page or API
//! - [`smsq_report`]: who was reached, who was not, and why
//! - [`smsq_serve`]: the server: page, API, receipts by webhook, metrics
//! - [`smsq_prove`]: rounds of faults, and the judge of what happened
//! - [`smsq_sandbox`]: the practice gateway

pub mod cli;
pub mod commands;
pub mod config;

//! The real binary, run as its users run it, the store on every database, and the house in order: one
//! test program for all, so that it is linked once.

mod batches;
mod cli;
mod cluster;
mod configuration;
mod faults;
mod flows;
mod forgetting;
mod house;
mod inserts;
mod kill;
mod limits;
mod lists;
mod lists_asked;
mod lists_files;
mod lists_odd;
mod lists_templates;
mod look_ups;
mod mending;
mod outbox;
mod pace;
mod redis;
mod servers;
mod signals;
mod starved;
mod stopping;
mod store;
mod support;
mod terminal;
mod vendors;
mod vendors_batches;
mod vendors_commands;
mod vendors_look_ups;
mod vendors_peers;
mod windows;
mod workers;

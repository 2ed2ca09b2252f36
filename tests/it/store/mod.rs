//! The store's conformance suite: every test runs on every database, and after each nothing is lost.

mod desk;

mod calls;
mod claiming;
mod commits;
mod contention;
mod file;
mod foreign;
mod importing;
mod late;
mod limits;
mod opening;
mod operating;
mod plans;
mod purging;
mod random;
mod replacing;
mod reporting;
mod server;
mod settling;
mod windows;
mod workers;

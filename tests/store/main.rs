//! The conformance suite of the store: every test runs on every database, and counts all messages at its end.

mod test_queue;

/// What the tests of the program use, too.
#[path = "../it/support"]
mod support {
    #[expect(dead_code, reason = "the tests of the program use all of it")]
    pub(crate) mod client;
    #[expect(dead_code, reason = "the tests of the program use all of it")]
    pub(crate) mod databases;
    pub(crate) mod proxy;
    pub(crate) mod waiting;
}

mod activity;
mod approvals;
mod attempts;
mod batches;
mod budgets;
mod claim;
mod commit_count;
mod concurrency;
mod dead;
mod doubt;
mod import;
mod intake;
mod lanes;
mod late_results;
mod limits;
mod lost_claims;
mod lost_commits;
mod not_utf8;
mod open;
mod operator;
mod outbox;
mod purge;
mod query_plans;
mod random_operations;
mod receipts;
mod recipients;
mod replace;
mod report;
mod schedules;
mod server;
mod settle;
mod sqlite_file;
mod statements;
mod workers;

//! The conformance suite of the store: every test runs on every database, and counts all messages at its end.

mod test_queue;

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

//! Results that the database rejects: one bad row affects no other, and results that a worker could not store
//! are saved to a file that the next worker reads.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::Signal;
use smsq_sandbox::SandboxConfig;

use crate::support::Scratch;
use crate::support::databases::{Database, with_every_database};
use crate::support::practice::{Practice, list};
use crate::support::unstored::{accept_sent_rows, left_files, start_with_unstorable_results};

const SEND: [&str; 3] = ["send", "--concurrency", "8"];

/// The result files of workers that ended.
fn result_files(db: &Database, scratch: &Scratch) -> Vec<PathBuf> {
    left_files(db, scratch, "jsonl")
}

#[test]
fn message_with_id_of_a_sent_one_affects_no_other() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.without_references("").at(&db.url).imported(&list(3));
        scratch.run(SEND).assert_code(0);
        let sent_id = db.number("SELECT min(id) AS value FROM sms_sent");
        db.run(&format!(
            "INSERT INTO sms (id, phone, content) VALUES ({sent_id}, '+447499999999', 'x')"
        ));
        scratch.import(&list(60));
        scratch.run(SEND).assert_code(1);
        gateway.assert_each_once(61);
        assert_eq!(db.number("SELECT count(*) AS value FROM sms_sent"), 60);
        let reasons = db.words("SELECT last_reason AS value FROM sms WHERE state = 2");
        let reason = reasons[0].clone().unwrap_or_default();
        assert!(reason.contains("`cellar` accepted it as `"), "{reason}");
        assert_eq!(reasons.len(), 1);
        scratch.run(["send", "--on-unknown", "resend"]).assert_code(1);
        gateway.assert_each_once(61);
    });
}

#[test]
fn unstored_results_are_saved_for_the_next_worker() {
    with_every_database(|db| {
        let (gateway, scratch, mut sending) = start_with_unstorable_results(db);
        sending.signal(Signal::TERM);
        let ran = sending.ended().assert_code(2);
        assert!(ran.stderr().contains("etwas anderes"), "{ran}");
        let files = result_files(db, &scratch);
        assert_eq!(files.len(), 1, "{files:?}");
        let mode = std::fs::metadata(&files[0]).expect("a file").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&files[0]).expect("a file");
        assert!(!text.contains("+44"), "{text}");
        let accepted = gateway.accepted();
        assert_eq!(text.matches("\"sent\"").count() as u64, accepted, "{text}");
        accept_sent_rows(db);
        scratch.run(SEND).assert_code(0);
        gateway.assert_each_once(40);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], 40);
        let counts = db.number("SELECT sum(accepted + attempts) AS value FROM sms_sent");
        assert_eq!(counts, 80);
        assert_eq!(result_files(db, &scratch), Vec::<PathBuf>::new());
    });
}

#[test]
fn aborted_worker_saves_its_unstored_results() {
    with_every_database(|db| {
        let (gateway, scratch, mut sending) = start_with_unstorable_results(db);
        sending.signal(Signal::TERM);
        sending.until_printed("it is stopping", |said| said.contains("stopping"));
        sending.signal(Signal::INT);
        sending.ended().assert_code(130);
        assert_eq!(result_files(db, &scratch).len(), 1);
        accept_sent_rows(db);
        scratch.run(SEND).assert_code(0);
        gateway.assert_each_once(40);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], 40);
    });
}

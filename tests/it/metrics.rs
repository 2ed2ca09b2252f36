//! `--metrics-file`: what it contains during a run and after its end, who may read it, and how many campaigns it names.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use smsq_sandbox::SandboxConfig;

use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::practice::{Practice, list, reserved_list};

const SEND: [&str; 4] = ["send", "--quiet", "--metrics-file", "smsq.prom"];
const LAST_SUCCESS: &str = "smsq_run_last_success_timestamp_seconds";

/// The value of a sample in the file.
fn sample(scratch: &Scratch, name: &str) -> Option<f64> {
    let text = scratch.read("smsq.prom");
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(value.parse().expect("a number"))
}

#[test]
fn metrics_file_has_the_counts_of_the_run() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.with_references("").at(&db.url).scratch();
        let rejected = reserved_list(1, 3);
        let rejected = rejected.strip_prefix("phone\n").expect("a header");
        let double = "+447400010010\n";
        scratch.import(&format!("{}{rejected}{double}", list(7)));
        scratch.run(SEND).assert_code(1);
        let attempts = "smsq_attempts_total{provider=\"practice\",outcome=";
        let messages = "smsq_messages{campaign=\"c\",provider=\"practice\",state=";
        for (name, value) in [
            (&*format!("{attempts}\"accepted\"}}"), 7.0),
            (&*format!("{attempts}\"rejected\"}}"), 3.0),
            (&*format!("{messages}\"sent\"}}"), 7.0),
            (&*format!("{messages}\"failed\"}}"), 3.0),
            (&*format!("{messages}\"queued\"}}"), 0.0),
            ("smsq_import_rows_total{result=\"accepted\"}", 10.0),
            ("smsq_import_rows_total{result=\"duplicate\"}", 1.0),
            ("smsq_workers{state=\"alive\"}", 0.0),
            ("smsq_requests{state=\"busy\"}", 0.0),
            ("smsq_suppressed_numbers", 0.0),
            ("smsq_oldest_due_seconds", 0.0),
            ("smsq_database_up", 1.0),
            ("smsq_run_exit_code", 1.0),
        ] {
            assert_eq!(sample(&scratch, name), Some(value), "{name}");
        }
        let text = scratch.read("smsq.prom");
        assert!(!text.contains("4474000"), "{text}");
        let permissions = fs::metadata(scratch.path("smsq.prom")).expect("a file");
        assert_eq!(permissions.permissions().mode() & 0o777, 0o644);
    });
}

#[test]
fn failed_run_keeps_the_time_of_the_last_success() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("").scratch();
    let send = ["send", "--quiet", "--metrics-file", "smsq.prom"];
    assert_eq!(scratch.run(send).code(), Some(2), "there is no database");
    assert_eq!(sample(&scratch, "smsq_run_exit_code"), Some(2.0));
    assert_eq!(sample(&scratch, "smsq_database_up"), Some(0.0));
    assert_eq!(sample(&scratch, LAST_SUCCESS), None);

    scratch.import(&list(1));
    scratch.run(send).assert_code(0);
    assert_eq!(sample(&scratch, "smsq_run_exit_code"), Some(0.0));
    let success = sample(&scratch, LAST_SUCCESS);
    assert!(success.is_some_and(|at| at > 1.7e9), "{success:?}");

    let other = ["send", "--quiet", "--metrics-file", "smsq.prom", "--campaign", "none"];
    scratch.run(other).assert_code(2);
    assert_eq!(sample(&scratch, "smsq_run_exit_code"), Some(2.0));
    assert_eq!(sample(&scratch, LAST_SUCCESS), success);
}

#[test]
fn older_campaigns_are_summed() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("").scratch();
    let toml = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("[metrics]\nmax_campaigns = 1\n{toml}"));
    for (name, rows) in [("a", 1), ("b", 2), ("c", 4)] {
        scratch.write("list.csv", &list(rows));
        scratch.run(["import", "list.csv", "--text", "Hello", "--campaign", name]).assert_code(0);
    }
    scratch.run(SEND).assert_code(0);
    let other = "smsq_messages{campaign=\"other\",provider=\"other\",state=\"sent\"}";
    let newest = "smsq_messages{campaign=\"c\",provider=\"practice\",state=\"sent\"}";
    assert_eq!(sample(&scratch, other), Some(3.0));
    assert_eq!(sample(&scratch, newest), Some(4.0));
    assert!(!scratch.read("smsq.prom").contains("campaign=\"a\""));
}

#[test]
fn run_writes_a_metrics_file() {
    let scratch = Scratch::new();
    scratch.write("list.csv", &list(3));
    let line = "run list.csv --text Hello --quiet --metrics-file smsq.prom";
    scratch.run(line.split(' ')).assert_code(0);
    let accepted = "smsq_attempts_total{provider=\"sandbox\",outcome=\"accepted\"}";
    assert_eq!(sample(&scratch, accepted), Some(3.0));
    assert_eq!(sample(&scratch, "smsq_run_exit_code"), Some(0.0));
}

#[test]
fn metrics_file_that_cannot_be_written_is_an_error() {
    let scratch = Scratch::new();
    scratch.import(&list(1));
    for (path, reason) in [
        ("missing/smsq.prom", "cannot write metrics file `missing/smsq.prom`"),
        ("-", "invalid metrics file `-`: it is not a file"),
    ] {
        let ran = scratch.run(["send", "--metrics-file", path]).assert_code(2);
        assert!(ran.stderr().contains(reason), "{ran}");
    }
}

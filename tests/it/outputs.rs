//! Files that smsq writes: those that a report never overwrites, and the permissions of new ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::waiting::eventually;
use crate::support::{LIST, Scratch, snapshot};

/// With a list that was imported and a configuration.
fn imported() -> Scratch {
    let scratch = Scratch::new();
    scratch.write_cellar("http://127.0.0.1:9");
    scratch.import(LIST);
    scratch
}

fn report<'a>(output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let line = ["report", "--format", "csv", "--output", output];
    [&line[..], more].concat()
}

#[test]
fn report_never_overwrites_database_configuration_or_list() {
    let scratch = imported();
    std::os::unix::fs::symlink("smsq.db", scratch.path("link.csv")).expect("a link");
    for (name, what) in [
        ("smsq.db", "the database"),
        ("./smsq.db", "the database"),
        ("link.csv", "the database"),
        ("smsq.db-wal", "the database"),
        ("smsq.db-shm", "the database"),
        ("smsq.toml", "the configuration"),
        ("list.csv", "a list that was imported"),
    ] {
        let before = fs::read(scratch.path(name)).ok();
        for more in [&[][..], &["--force"]] {
            let ran = scratch.run(report(name, more)).assert_code(2);
            let message = format!("cannot overwrite `{name}`: it is {what}");
            assert!(ran.stderr().contains(&message), "{ran}");
        }
        assert_eq!(fs::read(scratch.path(name)).ok(), before, "{name}");
    }
    scratch.run(["check", "--offline"]).assert_code(0);
}

#[test]
fn report_overwrites_another_file_only_with_force() {
    let scratch = imported();
    scratch.write("notes.txt", "mine");
    snapshot!(scratch.run(report("notes.txt", &[])), @r"
    exit 2
    ----- stderr
    error: `notes.txt` already exists
    hint: `--force` replaces it
    ");
    assert_eq!(scratch.read("notes.txt"), "mine");
    scratch.run(report("notes.txt", &["--force"])).assert_code(0);
    assert!(scratch.read("notes.txt").starts_with("campaign,"));
}

#[test]
fn report_to_dash_is_standard_output() {
    let scratch = imported();
    let ran = scratch.run(report("-", &[]));
    assert!(ran.stdout().starts_with("campaign,"), "{ran}");
    assert!(!scratch.path("-").exists());
    scratch.run(report("/dev/null", &[])).assert_code(0);
}

fn mode(scratch: &Scratch, name: &str) -> u32 {
    let found = fs::metadata(scratch.path(name)).expect("the file");
    found.permissions().mode() & 0o777
}

#[test]
fn new_files_with_personal_data_are_readable_by_owner_only() {
    let scratch = imported();
    scratch.run(report("report.csv", &[])).assert_code(0);
    for name in ["smsq.db", "list.rejects.csv", "report.csv"] {
        assert_eq!(mode(&scratch, name), 0o600, "{name}");
    }
    let sending = scratch.start(["send", "--follow"]);
    for name in ["smsq.db-wal", "smsq.db-shm"] {
        eventually("it is there", || scratch.path(name).exists());
        assert_eq!(mode(&scratch, name), 0o600, "{name}");
    }
    sending.kill();
    // An existing file keeps its permissions.
    let shared = fs::Permissions::from_mode(0o644);
    fs::set_permissions(scratch.path("report.csv"), shared).expect("permissions");
    scratch.run(report("report.csv", &["--force"])).assert_code(0);
    assert_eq!(mode(&scratch, "report.csv"), 0o644);
}

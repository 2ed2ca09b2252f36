//! Start and expiry of imported messages: invalid values, and where they are shown.

use crate::support::databases::with_every_database;
use crate::support::{Scratch, snapshot};

const LIST: &str = "phone,name\n+447400123456,Ann\n+447400123457,Bob\n";

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST);
    scratch
}

const IMPORT: [&str; 6] = ["import", "list.csv", "--text", "Hi", "--campaign", "eve"];
const AT: [&str; 4] = ["--at", "2099-12-24 09:00", "--expires", "+8h"];
const BERLIN: [(&str, &str); 1] = [("TZ", "Europe/Berlin")];

#[test]
fn import_rejects_start_in_the_past() {
    for (command, more) in [("import", &[][..]), ("import", &["--dry-run"]), ("run", &["--yes"])] {
        let scratch = scratch();
        let line = [command, "list.csv", "--text", "Hi", "--at", "2020-12-24 09:00"];
        let ran = scratch.run_with([&line[..], more].concat(), &BERLIN).assert_code(2);
        assert!(
            ran.stderr().contains(
                "error: `--at` 2020-12-24 09:00 CET (08:00 UTC) is in the past\n\
                 hint: omit `--at` to send at once\n"
            ),
            "{ran}"
        );
        assert!(!scratch.path("smsq.db").exists(), "{ran}");
    }
    scratch().run(IMPORT.into_iter().chain(["--at", "+0s"])).assert_code(0);
}

#[test]
fn import_rejects_expiry_before_start() {
    let line = ["--at", "2099-12-24", "--expires", "2099-12-23 23:00"];
    snapshot!(scratch().run(IMPORT.into_iter().chain(line)), @r"
    exit 2
    ----- stderr
    error: `--expires` 2099-12-23 23:00 UTC is not after `--at` 2099-12-24 00:00 UTC
    hint: nothing would be sent
    ");
}

#[test]
fn relative_expiry_counts_from_the_start() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        scratch.write("list.csv", LIST);
        scratch.run_with(IMPORT.into_iter().chain(AT), &BERLIN).assert_code(0);
        let span = db.number("SELECT max(expires_at - due_at) AS value FROM sms");
        assert_eq!(span, 8 * 60 * 60 * 1_000);
        let command = ["status", "--campaign", "eve"];
        let ran = scratch.run_with(command, &BERLIN);
        assert!(
            ran.stdout().starts_with(
                "eve: active\n\
                 starts 2099-12-24 09:00 CET (08:00 UTC), expires 2099-12-24 17:00 CET (16:00 UTC)\n"
            ),
            "{ran}"
        );
        let ran = scratch.run(command.into_iter().chain(["--format", "json"]));
        let status = ran.json();
        // The import read the time from another clock.
        assert_eq!(status["due_at"], "2099-12-24T08:00:00Z");
        assert_eq!(status["expires_at"], "2099-12-24T16:00:00Z");
    });
}

#[test]
fn import_shows_start_and_expiry_in_local_time_and_utc() {
    let shown = "  starts      2099-12-24 09:00 CET (08:00 UTC)\n  \
                 expires     2099-12-24 17:00 CET (16:00 UTC)\n";
    for more in [&["--dry-run"][..], &[]] {
        let scratch = scratch();
        let ran = scratch.run_with([&IMPORT[..], &AT, more].concat(), &BERLIN);
        assert!(ran.stdout().contains(shown), "{ran}");
        let json = [&IMPORT[..], &AT, more, &["--format", "json"]].concat();
        let object = scratch.run(json).json();
        assert_eq!(object["due_at"], "2099-12-24T09:00:00Z");
        assert_eq!(object["expires_at"], "2099-12-24T17:00:00Z");
    }
}

#[test]
fn waiting_send_and_run_stop_at_ctrl_c() {
    let at = ["--at", "2099-12-24 09:00"];
    let run: Vec<&str> = ["run"].into_iter().chain(IMPORT[1..].iter().copied()).chain(at).collect();
    for command in [vec!["send"], run] {
        let scratch = scratch();
        scratch.write_cellar("http://127.0.0.1:9");
        if command == ["send"] {
            scratch.run(IMPORT.into_iter().chain(at)).assert_code(0);
        }
        let mut sending = scratch.start(command);
        sending.until_printed("it waits", |message| {
            message.contains("campaign `eve` starts 2099-12-24 09:00 UTC: waiting for ")
        });
        sending.signal(rustix::process::Signal::INT);
        sending.ended().assert_code(130);
    }
}

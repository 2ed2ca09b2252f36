//! `smsq purge`: what is deleted, what is still counted, and the confirmation.

use rustix::process::Signal;

use crate::lists_checks::at_a_terminal;
use crate::support::databases::Database;
use crate::support::practice::list;
use crate::support::shell::{Lock, sqlite};
use crate::support::{Gateway, LIST, Scratch, snapshot};

/// Sends the list, and makes its messages a hundred days old.
fn settled_long_ago(scratch: &Scratch, db: &Database) -> Gateway {
    let gateway = Gateway::start_cellar(scratch, &[]);
    scratch.import(LIST);
    scratch.run(["send", "--quiet"]).assert_code(1);
    age(db);
    gateway
}

#[test]
fn purge_counts_the_chunk_that_a_signal_interrupts() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    scratch.import(&list(3));
    scratch.run(["send"]).assert_code(0);
    sqlite(&scratch, "UPDATE sms_sent SET sent_at = 1");
    let lock = Lock::hold(&scratch);
    let mut purging = scratch.start(["-vv", "purge", "--older-than", "90d", "--yes"]);
    // Before it purges, the signal would end the process.
    purging.until_printed("it purges", |said| said.contains("signals stop the command"));
    purging.signal(Signal::INT);
    purging.until_printed("it stops", |said| said.contains("stopping: "));
    drop(lock);
    let ran = purging.ended().assert_code(130);
    assert!(ran.stderr().contains("purged 3 messages (3 sent)"), "{ran}");
    assert_eq!(sqlite(&scratch, "SELECT count(*) FROM sms_sent"), "0");
}

#[test]
fn answer_no_exits_2_and_purges_nothing() {
    let db = Database::in_a_file();
    let scratch = Scratch::at(&db.url);
    let _gateway = settled_long_ago(&scratch, &db);
    let purge = scratch.command(["purge", "--older-than", "90d"]);
    let (code, seen) = at_a_terminal(purge, "n\n");
    assert_eq!(code, Some(2), "{seen}");
    assert!(seen.contains("nothing was purged"), "{seen}");
    assert_eq!(db.number("SELECT count(*) AS value FROM sms_sent"), 3);
}

fn age(db: &Database) {
    let days: i64 = 100 * 24 * 60 * 60 * 1_000;
    db.run(&format!(
        "UPDATE sms_sent SET sent_at = sent_at - {days};
         UPDATE sms_failed SET failed_at = failed_at - {days};"
    ));
}

#[test]
fn purge_deletes_old_messages_and_keeps_counts() {
    let db = Database::in_a_file();
    let scratch = Scratch::at(&db.url);
    let _gateway = settled_long_ago(&scratch, &db);
    let before = scratch.checked_status(Some("c"));
    snapshot!(scratch.run(["purge", "--older-than", "90d"]), @r"
    exit 2
    ----- stderr
    error: a purge cannot be undone, and standard input is not a terminal
    hint: pass `--yes` to confirm; `--dry-run` only counts
    ");
    snapshot!(scratch.run(["purge", "--older-than", "90d", "--dry-run"]), @r"
    exit 0
    ----- stderr
    dry run: would purge 4 messages settled before [DATE] (3 sent, 1 failed)
    ");
    assert_eq!(scratch.checked_status(Some("c")), before);
    snapshot!(scratch.run(["purge", "--older-than", "90d", "--yes", "--format", "json"]), @r#"
    exit 0
    ----- stdout
    {
      "purged": 4,
      "sent": 3,
      "failed": 1,
      "unknown": 0,
      "cancelled": 0,
      "sending": 0
    }
    ----- stderr
    purged 4 messages (3 sent, 1 failed)
    "#);
    snapshot!(scratch.run(["report", "--campaign", "c"]), @r"
    exit 0
    ----- stdout
    c: done

       imported  4
       sent      3  75.0 %
       failed    1  25.0 %

      text        Hello
      segments    3 (4 messages imported in GSM-7, 0 in UCS-2)
      lists       list.csv (6 rows: 4 accepted, 1 duplicate, 0 suppressed, 1 rejected)

    4 of them were purged, the last at [DATE]: only their counts are left
    ");
    let after = scratch.checked_status(Some("c"));
    assert_eq!((&after["sent"], &after["purged"]), (&before["sent"], &4.into()));
    snapshot!(scratch.run(["report", "--failed"]), @r"
    exit 0
    ");
    for table in ["sms", "sms_sent", "sms_failed", "sms_key"] {
        assert_eq!(db.number(&format!("SELECT count(*) AS value FROM {table}")), 0, "{table}");
    }
}

#[test]
fn retention_setting_purges_automatically() {
    let db = Database::in_a_file();
    let scratch = Scratch::at(&db.url);
    let _gateway = settled_long_ago(&scratch, &db);
    let keep = [("SMSQ__RETENTION__OLDER_THAN", "90d")];
    let ran = scratch.run_with(["send"], &keep);
    let said = "purged 4 old messages (3 sent, 1 failed): setting `retention.older_than`";
    assert!(ran.stderr().contains(said), "{ran}");
    scratch.checked_status(Some("c"));
    let faulty = scratch.run_with(["send"], &[("SMSQ__RETENTION__OLDER_THAN", "5h")]);
    snapshot!(faulty, @r"
    exit 2
    ----- stderr
    error: environment variable SMSQ__RETENTION__OLDER_THAN: invalid value `5h` of `retention.older_than`: expected an age of a day or more, like `90d`, `6mo` or `1y`, or empty
    ");
}

#[test]
fn purge_of_a_phone_deletes_queued_messages() {
    let db = Database::in_a_file();
    let scratch = Scratch::at(&db.url);
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    scratch.import(LIST);
    scratch.run(["suppress", "add", "+447400123499"]).assert_code(0);
    let line = ["purge", "--phone", "07400 123456", "--region", "GB"];
    snapshot!(scratch.run(line.into_iter().chain(["--dry-run"])), @r"
    exit 0
    ----- stderr
    dry run: would purge 1 message (1 cancelled)
    ");
    snapshot!(scratch.run(line.into_iter().chain(["--yes"])), @r"
    exit 0
    ----- stderr
    purged 1 message (1 cancelled)
    the suppression list is not purged: `smsq suppress add` keeps a phone from being texted again
    ");
    scratch.run(["send", "--quiet"]).assert_code(1);
    let status = scratch.checked_status(Some("c"));
    assert_eq!((&status["sent"], &status["cancelled"]), (&2.into(), &1.into()));
    let known = "SELECT count(*) AS value FROM sms_key WHERE dedupe_key = '+447400123456'";
    assert_eq!(db.number(known), 0);
    assert_eq!(
        db.number("SELECT count(*) AS value FROM suppression WHERE phone = '+447400123499'"),
        1
    );
    assert_eq!(
        db.number("SELECT count(*) AS value FROM sms_sent WHERE phone = '+447400123456'"),
        0
    );
}

#[test]
fn purge_rejects_invalid_arguments() {
    let scratch = Scratch::new();
    for (line, why) in [
        (&["purge"][..], "required"),
        (&["purge", "--older-than", "soon"], "invalid age `soon`"),
        (&["purge", "--older-than", "5h"], "messages are kept for at least a day"),
        (&["purge", "--older-than", "90d", "--phone", "1"], "cannot be used with"),
    ] {
        let ran = scratch.run(line.iter().copied()).assert_code(2);
        assert!(ran.stderr().contains(why), "{ran}");
    }
}

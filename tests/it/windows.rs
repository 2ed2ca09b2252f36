//! Sending windows and caps per recipient on the command line: what is rejected before anything is written, and
//! which messages wait.

use crate::support::{Gateway, Scratch, snapshot};

const LIST: &str = "phone,name,tz\n\
                    +447400123456,Ann,Europe/London\n\
                    +447400123457,Bob,Mars\n\
                    +447400123458,Cy,\n";

/// A folder with a list and a provider that is not running.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write_cellar("http://127.0.0.1:9").write("list.csv", LIST);
    scratch
}

fn import<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let line = ["import", "list.csv", "--text", "hi", "--campaign", "spring"];
    [&line[..], flags].concat()
}

/// Two hours of the day that are far from now, whatever the time is.
fn closed() -> &'static str {
    let since_epoch =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    match since_epoch.as_secs() / 3_600 % 24 {
        0..12 => "18:00-20:00",
        _ => "04:00-06:00",
    }
}

#[test]
fn invalid_window_is_rejected_before_import() {
    let zone = ["--window", "9-20", "--timezone"];
    let utc = ["--timezone", "UTC", "--window"];
    let cases: [(Vec<&str>, &str); 12] = [
        (
            [&zone[..], &["Asia/Shangai"]].concat(),
            "unknown time zone `Asia/Shangai`; did you mean `Asia/Shanghai`?",
        ),
        (
            [&zone[..], &["Mars"]].concat(),
            "unknown time zone `Mars`: write it like `Europe/Berlin` or `UTC`",
        ),
        ([&utc[..], &["9-9"]].concat(), "invalid hours `9-9`: they close when they open"),
        ([&utc[..], &["22:00-06:00"]].concat(), "invalid hours `22:00-06:00`: they cross midnight"),
        ([&utc[..], &["9 to 5"]].concat(), "invalid hours `9 to 5`: write them like `09:00-20:00`"),
        (
            [&utc[..], &["9-20", "--days", "someday"]].concat(),
            "invalid days `someday`: write them like `mon-fri`",
        ),
        (vec!["--window", "9-20"], "missing `--timezone`: a sending window needs one"),
        (vec!["--days", "mon"], "missing `--window`: days and a time zone need one"),
        (
            vec!["--window", "none", "--days", "mon"],
            "`--window none` cannot be combined with days or a time zone",
        ),
        ([&zone[..], &["recipient"]].concat(), "not every recipient's time zone is known"),
        (
            [&zone[..], &["UTC", "--fallback-timezone", "UTC"]].concat(),
            "`--fallback-timezone` needs `--timezone recipient`",
        ),
        (
            [&zone[..], &["column", "--fallback-timezone", "UTC"]].concat(),
            "missing column `timezone` in `list.csv`",
        ),
    ];
    for (flags, why) in cases {
        let scratch = scratch();
        let ran = scratch.run(import(&flags)).assert_code(2);
        assert!(ran.stderr().contains(why), "{why}: {ran}");
        assert!(!scratch.path("smsq.db").exists(), "{ran}");
    }
}

#[test]
fn window_after_the_expiry_is_rejected() {
    let scratch = scratch();
    let hours = ["--window", closed(), "--timezone", "UTC"];
    for more in [&["--expires", "+1h"][..], &["--expires", "+1h", "--dry-run"]] {
        let ran = scratch.run(import(&[&hours[..], more].concat())).assert_code(2);
        assert!(ran.stderr().contains(": nothing would be sent"), "{ran}");
        assert!(!scratch.path("smsq.db").exists(), "{ran}");
    }
    scratch.run(import(&["--expires", "+1h"])).assert_code(0);
    let line = [&["set", "--campaign", "spring"], &hours[..]].concat();
    let ran = scratch.run(line).assert_code(2);
    let why = "after all messages of campaign `spring` have expired";
    assert!(ran.stderr().contains(why), "{ran}");
    let ran = scratch.run(["status", "--format", "json", "--campaign", "spring"]);
    assert_eq!(ran.json()["window"], serde_json::Value::Null, "{ran}");
}

#[test]
fn cap_of_zero_is_rejected() {
    let scratch = scratch();
    let cap = [("SMSQ__SENDER__MAX_PER_RECIPIENT", "0/day")];
    snapshot!(scratch.run_with(["status"], &cap), @r#"
    exit 2
    ----- stderr
    error: environment variable SMSQ__SENDER__MAX_PER_RECIPIENT: invalid value `0/day` of `sender.max_per_recipient`: expected a limit like `10/day`, or several like `["1/30s", "10/day"]`; at least 1
    "#);
}

#[test]
fn time_zone_column_applies_and_invalid_zone_is_rejected() {
    let scratch = scratch();
    let flags = [
        "--window",
        "00:00-24:00",
        "--timezone",
        "column",
        "--column",
        "timezone=tz",
        "--fallback-timezone",
        "Asia/Shanghai",
    ];
    snapshot!(scratch.run(import(&flags)), @r"
    exit 0
    ----- stdout
    list.csv into campaign `spring`
      rows        3
      accepted    2
      duplicates  0
      suppressed  0
      rejected    1 (1 unknown time zone)
      segments    2 (2 messages in GSM-7, 0 in UCS-2)
    ----- stderr
    warning: `list.csv`: rejected 1 row, with the reasons in `list.rejects.csv`
    fix that file and import it: `smsq import list.rejects.csv --campaign spring --text hi --column 'timezone=tz' --window 00:00-24:00 --timezone column --fallback-timezone Asia/Shanghai`
    next: `smsq send --campaign spring`
    ");
    snapshot!(scratch.read("list.rejects.csv"), @"
    phone,name,tz,smsq_text,smsq_line,smsq_reason
    +447400123457,Bob,Mars,,3,unknown time zone `Mars`: write it like `Europe/Berlin` or `UTC`
    ");
    snapshot!(scratch.run(["status", "--campaign", "spring", "--format", "json"]), @r#"
    exit 0
    ----- stdout
    {
      "campaign": "spring",
      "practice": false,
      "state": "active",
      "state_reason": null,
      "window": {
        "hours": "00:00-24:00",
        "days": "daily",
        "timezone": "column",
        "fallback_timezone": "Asia/Shanghai",
        "opens_at": null
      },
      "imported": 2,
      "queued": 2,
      "sending": 0,
      "sent": 0,
      "failed": 0,
      "unknown": 0,
      "cancelled": 0,
      "workers": [],
      "stops": [],
      "waiting_by_provider": [],
      "failovers": [],
      "slowest_senders": [],
      "senders_off": [],
      "last_failures": []
    }
    "#);
}

#[test]
fn send_waits_for_the_window_until_it_is_removed() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    scratch.write("list.csv", LIST);
    scratch.run(import(&["--window", closed(), "--timezone", "UTC"])).assert_code(0);
    let ran = scratch.run(["send", "--no-wait"]).assert_code(3);
    assert_eq!(ran.stdout(), "nothing was sent\n", "{ran}");
    let expected = "nothing was lost: run `smsq send` then";
    assert!(ran.stderr().contains("campaign `spring` waits until"), "{ran}");
    assert!(ran.stderr().contains(expected), "{ran}");
    let ran = scratch.run(["status", "--campaign", "spring"]);
    let expected = format!("sent {} daily in UTC; opens ", closed());
    assert!(ran.stdout().contains(&expected), "{ran}");
    let ran = scratch.run(["status", "--format", "json", "--campaign", "spring"]);
    assert!(ran.json()["window"]["opens_at"].is_string(), "{ran}");
    snapshot!(scratch.run(["set", "--campaign", "spring", "--window", "none"]), @"
    exit 0
    ----- stderr
    campaign `spring`: no limit of its own, priority 0, sent by the default provider
    ");
    let ran = scratch.run(["send", "--no-wait", "--format", "json"]).assert_code(0);
    assert_eq!(ran.json()["sent"], 3, "{ran}");
}

#[test]
fn opted_out_recipient_is_suppressed() {
    let scratch = Scratch::new();
    let gateway = Gateway::start(&scratch, &[]);
    let list = "phone\n+15005552000\n+447400123456\n";
    scratch.write_cellar(&gateway.url).write("list.csv", list);
    scratch.run(import(&[])).assert_code(0);
    let ran = scratch.run(["send", "--format", "json"]);
    assert_eq!(ran.json()["failed"], 1, "{ran}");
    let ran = scratch.run(["suppress", "list"]);
    let line = ran.stdout();
    assert!(line.contains("+15005552000"), "{ran}");
    assert!(line.contains("`cellar` said on "), "{ran}");
    let again = ["import", "list.csv", "--text", "more", "--campaign", "summer", "--again"];
    let ran = scratch.run([&again[..], &["--format", "json"]].concat());
    let object = ran.json();
    assert_eq!((&object["accepted"], &object["suppressed"]), (&1.into(), &1.into()), "{ran}");
}

#[test]
fn recipient_over_the_cap_delays_no_other() {
    let scratch = Scratch::new();
    let gateway = Gateway::start(&scratch, &[]);
    let list = "phone,n\n+447400123456,1\n+447400123456,2\n+447400123457,3\n";
    scratch.write_cellar(&gateway.url).write("list.csv", list);
    scratch.run(import(&["--unique", "phone,n"])).assert_code(0);
    let cap = [("SMSQ__SENDER__MAX_PER_RECIPIENT", "1/day")];
    let ran = scratch.run_with(["send", "--no-wait", "--format", "json"], &cap).assert_code(3);
    assert_eq!((&ran.json()["sent"], &ran.json()["queued"]), (&2.into(), &1.into()), "{ran}");
}

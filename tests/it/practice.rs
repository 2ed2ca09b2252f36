//! Practice: what is practice says so everywhere, and neither replaces nor meets what is not.

use rustix::process::Signal;
use serde_json::Value;
use smsq_sandbox::SandboxConfig;

use crate::support::databases::{values, with_every_database};
use crate::support::practice::{Practice, list};
use crate::support::timed_provider::{Reply, TimedProvider};
use crate::support::{Ran, Scratch, snapshot};

const NOTICE: &str = "practice: no phone gets any of these messages";

/// Two usable rows and one without a country code.
const MIXED: &str = "phone,name\n+447400123456,Ann\n+447400123457,Bob\n12345,Eve\n";

/// A provider that accepts every message, and counts them itself.
fn accepting() -> TimedProvider {
    TimedProvider::start(None, |_, count| Reply::Json(format!("{{\"id\":\"m{count}\"}}")))
}

/// Runs a line of words.
fn run(scratch: &Scratch, line: &str) -> Ran {
    scratch.run(line.split_whitespace())
}

fn assert_marked(ran: &Ran, code: i32) {
    assert_eq!(ran.code(), Some(code), "{ran}");
    assert_eq!(ran.stdout().lines().next(), Some(NOTICE), "{ran}");
}

#[test]
fn practice_imports_nothing_into_a_database_that_is_made_meanwhile() {
    with_every_database(|db| {
        let scratch = Scratch::new();
        scratch.write("practice.csv", &list(20_000)).write("real.csv", &list(2));
        let line = format!("run practice.csv --practice --text Never --database {}", db.url);
        let mut practice = scratch.start(line.split(' '));
        let folder = format!("/proc/{}/fd", practice.id());
        let is_reading = || {
            let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            files
                .filter_map(|file| file.path().read_link().ok())
                .any(|file| file.ends_with("practice.csv"))
        };
        assert!(practice.until("it reads its list", is_reading));
        practice.freeze();
        let line = format!("import real.csv --text Hello --campaign r --database {}", db.url);
        run(&scratch, &line).assert_code(0);
        practice.signal(Signal::CONT);
        let ended = practice.ended().assert_code(2);
        assert!(ended.stderr().contains("is not a practice database"), "{ended}");
        let campaigns = "SELECT name AS value FROM campaign WHERE id > 1";
        assert_eq!(db.words(campaigns), [Some("r".to_owned())]);
    });
}

#[test]
fn first_line_of_every_output_says_practice() {
    let scratch = Scratch::new();
    scratch.write("list.csv", &list(2));
    let ran = run(&scratch, "run list.csv --text Hi");
    assert_marked(&ran, 0);
    let first = ran.stderr().lines().next().map(str::to_owned);
    assert_eq!(
        first.as_deref(),
        Some(
            "practice: no provider is configured, so a practice gateway in this process accepts the messages, and \
             nothing leaves this machine. The database is `smsq-practice.db`."
        ),
        "{ran}"
    );
    let ran = run(&scratch, "run list.csv --text Hello --practice --yes -q");
    assert_marked(&ran, 0);
    assert_eq!(ran.stderr(), "", "{ran}");
    for line in [
        "send --practice",
        "send --practice -q",
        "status",
        "status -q",
        "report",
        "report --sent",
        "report --failed",
    ] {
        assert_marked(&run(&scratch, line), 0);
    }
    let page = run(&scratch, "report --format html").stdout();
    assert!(page.contains("<p class=\"practice\""), "{page}");
    // A line of the file would be a row of a list.
    let ran = run(&scratch, "report --sent --format csv -q");
    assert!(ran.stdout().starts_with("phone,campaign,"), "{ran}");
    let warning = format!("warning: {NOTICE}");
    assert_eq!(ran.stderr().lines().last(), Some(warning.as_str()));
}

/// Whether the object and each campaign in it says that it is practice.
fn assert_says(ran: &Ran, is_practice: bool) {
    let object = ran.json();
    assert_eq!(object["practice"], is_practice, "{ran}");
    let campaigns = object["campaigns"].as_array();
    for campaign in campaigns.into_iter().flatten() {
        assert_eq!(campaign["practice"], is_practice, "{ran}");
    }
}

#[test]
fn practice_database_is_marked_once_and_says_so_in_json() {
    with_every_database(|db| {
        let scratch = Scratch::new();
        scratch.write("list.csv", &list(2)).write("b.csv", &list(3));
        let database = &db.url;
        let json = |line: &str| {
            let line = format!("{line} --database {database} --format json");
            run(&scratch, &line).assert_code(0)
        };
        assert_says(&json("run list.csv --text Hi --campaign c --practice"), true);
        for line in [
            "run list.csv --text Hi --campaign d --practice",
            "import b.csv --text Hi --campaign c",
            "send --practice",
            "send --practice --campaign c",
            "status",
            "status --campaign c",
            "report",
            "report --campaign c",
        ] {
            assert_says(&json(line), true);
        }
        assert_eq!(json("status").json()["sent"], 5);
        let marks = "SELECT count(*) AS value FROM database_mode WHERE is_practice";
        assert_eq!(db.number(marks), 1);
    });
}

#[test]
fn messages_of_practice_and_others_never_meet() {
    with_every_database(|db| {
        let provider = accepting();
        let scratch = Scratch::new();
        scratch.write("list.csv", &list(3));
        let database = &db.url;
        let practise = format!("run list.csv --text Hi --practice --limit 1 --database {database}");
        assert_marked(&run(&scratch, &practise), 0);
        scratch.write_cellar(&provider.url());
        for line in [
            "send --yes",
            "run list.csv --text Hi --campaign other --yes",
            "serve --send --listen 127.0.0.1:0",
            "receipts",
        ] {
            let ran = run(&scratch, &format!("{line} --database {database}")).assert_code(2);
            assert!(ran.stderr().contains("is a practice database"), "{ran}");
            assert!(ran.stderr().contains("or add `--practice` to"), "{ran}");
        }
        assert_eq!(provider.lines(), Vec::<String>::new());
        let ran = run(&scratch, &format!("status --format json --database {database}"));
        let counts = ran.json();
        assert_eq!(
            (&counts["sent"], &counts["queued"], &counts["imported"]),
            (&1.into(), &2.into(), &3.into()),
            "{ran}"
        );
    });
}

#[test]
fn practice_gateway_gets_no_other_messages() {
    with_every_database(|db| {
        let provider = accepting();
        let scratch = Scratch::new();
        scratch.write_cellar(&provider.url());
        scratch.write("list.csv", &list(3));
        let database = &db.url;
        let with = |line: &str| run(&scratch, &format!("{line} --database {database}"));
        let ran = with("import list.csv --text Hi --format json").assert_code(0);
        assert_says(&ran, false);
        for line in [
            "send --yes --practice",
            "run list.csv --text Hi --campaign other --yes --practice",
            "serve --send --listen 127.0.0.1:0 --practice",
        ] {
            let ran = with(line).assert_code(2);
            assert!(ran.stderr().contains("is not a practice database"), "{ran}");
        }
        let ran = with("send --yes --format json").assert_code(0);
        assert_says(&ran, false);
        assert!(!with("status").stdout().contains("practice"));
        assert_eq!(provider.sends(), 3);
    });
}

/// A provider's section does not make a campaign of practice go there.
#[test]
fn practice_sends_to_no_configured_provider_and_no_hook() {
    let provider = accepting();
    let scratch = Scratch::new();
    let hooks = format!(
        "[[hooks]]\nname = \"crm\"\nurl = \"{}/hook\"\nsecret = {{ env = \"KEY\" }}\nallow_private = true\ninsecure = true\nevents = [\"campaign.done\"]\n",
        provider.url()
    );
    scratch.write_cellar(&provider.url());
    let section = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("{section}{hooks}")).write("list.csv", &list(3));
    let ran = run(&scratch, "run list.csv --text Hi --practice");
    assert_marked(&ran, 0);
    let ran = run(&scratch, "run list.csv --text Hi --practice --provider cellar").assert_code(2);
    assert!(ran.stderr().contains("omit `--provider`"), "{ran}");
    assert_eq!(provider.lines(), Vec::<String>::new());
    let waiting = "SELECT count(*) FROM hook_event";
    assert_eq!(numbers(&scratch, waiting), [0]);
}

/// Numbers of the practice database.
fn numbers(scratch: &Scratch, sql: &str) -> Vec<i64> {
    let sqlite = rusqlite::Connection::open(scratch.path("smsq-practice.db")).expect("a file");
    values(&sqlite, &format!("SELECT ({sql}) AS value"))
}

/// Environment variables and their values.
type Variables = &'static [(&'static str, &'static str)];

#[test]
fn nothing_that_is_named_is_replaced_by_practice() {
    let list = "run list.csv --text Hi";
    let flags = format!("--database sqlite://prod.db {list}");
    let silent = format!("{list} --yes -q");
    let other = format!("--config other.toml {list}");
    let unset: Variables = &[];
    let cases: [(&str, Variables, bool); 8] = [
        (&flags, unset, false),
        (&silent, unset, false),
        (&other, unset, false),
        (list, unset, true),
        (list, &[("SMSQ__DATABASE__URL", "sqlite://prod.db")], false),
        (list, &[("SMSQ__DATABASE__PASSWORD", "secret")], false),
        (list, &[("SMSQ_CONFIG", "other.toml")], false),
        (list, &[("SMSQ__PROVIDERS__TWILIO__FROM", "SHOP")], false),
    ];
    for (line, environment, has_file) in cases {
        let scratch = Scratch::new();
        scratch.write("list.csv", MIXED).write("other.toml", "default_region = \"GB\"\n");
        if has_file {
            scratch.write("smsq.toml", "default_region = \"GB\"\n");
        }
        let ran = scratch.run_with(line.split_whitespace(), environment);
        assert_eq!(ran.code(), Some(2), "{line} {environment:?}: {ran}");
        assert!(ran.stderr().contains("no provider is configured"), "{ran}");
        assert!(ran.stderr().contains("`--practice`"), "{ran}");
        for file in ["prod.db", "smsq.db", "smsq-practice.db"] {
            assert!(!scratch.path(file).exists(), "{line}: {file}");
        }
    }
}

#[test]
fn practice_does_not_use_the_database_of_the_configuration() {
    let scratch = Scratch::new();
    scratch.write("list.csv", MIXED).write("smsq.toml", "[database]\nurl = \"sqlite://prod.db\"\n");
    snapshot!(run(&scratch, "run list.csv --text Hi --practice"), @r"
    exit 2
    ----- stderr
    error: `--practice` uses a database of its own, and smsq.toml:2 sets `database.url`
    hint: add `--database sqlite://smsq-practice.db`
    ");
    assert!(!scratch.path("prod.db").exists());
    let ran =
        run(&scratch, "run list.csv --text Hi --practice --database sqlite://smsq-practice.db");
    assert_marked(&ran, 0);
}

/// The command that is printed to import the rejected rows after they were fixed.
fn printed_command(ran: &Ran) -> String {
    let stderr = ran.stderr();
    let (_, rest) = stderr
        .split_once("fix that file and import it: `smsq ")
        .unwrap_or_else(|| panic!("no command: {ran}"));
    let (command, _) = rest.split_once('`').expect("it ends");
    command.to_owned()
}

#[test]
fn printed_command_for_rejected_rows_stays_in_practice() {
    for database in ["", " --database sqlite://trial.db"] {
        let scratch = Scratch::new();
        scratch.write("list.csv", MIXED);
        let line = format!("run list.csv --text Hi --practice{database}");
        let command = printed_command(&run(&scratch, &line));
        assert!(command.starts_with("run list.rejects.csv "), "{command}");
        let fixed = scratch.read("list.rejects.csv").replace("12345,", "+447400123458,");
        scratch.write("list.rejects.csv", &fixed);
        assert_marked(&run(&scratch, &command), 0);
        let ran = run(&scratch, &format!("status --format json{database}"));
        let counts = ran.json();
        assert_eq!(counts["sent"], 3, "{ran}");
        assert_eq!(counts["campaigns"].as_array().map(Vec::len), Some(1));
        assert!(!scratch.path("smsq.db").exists());
    }
}

#[test]
fn import_after_practice_says_where_it_writes() {
    let scratch = Scratch::new();
    scratch.write("list.csv", &list(1));
    run(&scratch, "run list.csv --text Hi");
    let ran = run(&scratch, "import list.csv --text Hi -q").assert_code(0);
    assert_eq!(
        ran.stderr().trim_end(),
        "warning: the messages go to `smsq.db`, not to the practice database `smsq-practice.db`: \
         `smsq run --practice` uses that one"
    );
    assert!(scratch.path("smsq.db").exists());
    let ran = run(&scratch, "status --format json --database sqlite://smsq.db");
    assert_eq!(ran.json()["practice"], false, "{ran}");
}

#[test]
fn server_with_tokens_does_not_practise_after_practice() {
    let scratch = Scratch::new();
    scratch.write("list.csv", &list(1));
    run(&scratch, "run list.csv --text Hi");
    let made = run(&scratch, "serve token ann --role send").stderr();
    let token = made.split(['"', '\'', ' ', '\n']).find(|word| word.starts_with("ann:"));
    let tokens = [("SMSQ__SERVE__TOKENS", token.expect("a line for the configuration"))];
    let ran = scratch.run_with(["serve", "--listen", "127.0.0.1:0"], &tokens).assert_code(2);
    assert!(ran.stderr().contains("no provider is configured"), "{ran}");
}

#[test]
fn import_into_a_practice_database_stays_there() {
    let scratch = Scratch::new();
    scratch.write("list.csv", MIXED).write("b.csv", &list(2));
    run(&scratch, "run list.csv --text Hi --practice");
    let database = "--database sqlite://smsq-practice.db";
    let ran = run(&scratch, &format!("import b.csv --text Hi --campaign b {database}"));
    assert_marked(&ran, 0);
    assert!(ran.stderr().contains("next: `smsq send --campaign b --practice`"), "{ran}");
    assert_marked(&run(&scratch, "send --campaign b --practice"), 0);
}

#[test]
fn run_without_a_usable_row_exits_like_import() {
    with_every_database(|db| {
        let provider = accepting();
        let scratch = Scratch::at(&db.url);
        scratch.write_cellar(&provider.url());
        scratch
            .write("bad.csv", "phone\n0171234567\n0171234568\n")
            .write("empty.csv", "phone\n")
            .write("mixed.csv", MIXED);
        for (list, code, says) in [
            ("bad.csv", 1, "`bad.csv`: none of its rows can be used"),
            ("empty.csv", 1, "`empty.csv` has no rows"),
            ("mixed.csv", 0, "rejected 1 row"),
        ] {
            for command in ["import", "run"] {
                let ran = run(&scratch, &format!("{command} {list} --text Hi"));
                assert_eq!(ran.code(), Some(code), "{command}: {ran}");
                assert!(ran.stderr().contains(says), "{command}: {ran}");
            }
        }
        assert_eq!(provider.sends(), 2);
    });
}

#[test]
fn configured_sandbox_section_is_not_practice() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("").scratch();
    scratch.write("list.csv", &list(2));
    let ran = run(&scratch, "run list.csv --text Hi --format json").assert_code(0);
    assert_eq!(ran.json()["practice"], Value::Bool(false), "{ran}");
    gateway.assert_each_once(2);
}

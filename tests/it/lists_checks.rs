//! Checks and questions before an import writes anything, and dry runs.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Command;

use rustix::fs::{Mode, OFlags};

use crate::support::{Gateway, LIST, Scratch, snapshot};

#[test]
fn import_fails_above_max_rejects() {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST);
    let line = ["import", "list.csv", "--text", "Hi {{ name }}", "--max-rejects"];
    snapshot!(scratch.run(line.into_iter().chain(["5%"])), @r"
    exit 2
    ----- stderr
    error: `list.csv`: 1 of 6 rows would be rejected, and `max_rejects` is 5%
    hint: nothing was written; most frequent: scientific notation (1 row); `--dry-run` shows some of them
    ");
    assert!(!scratch.path("smsq.db").exists());
    assert!(!scratch.path("list.rejects.csv").exists());
    for enough in ["1", "17%"] {
        scratch.run(line.into_iter().chain([enough])).assert_code(0);
    }
    scratch.run(line.into_iter().chain(["some"])).assert_code(2);
}

#[test]
fn max_rejects_can_be_a_setting() {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST).write("smsq.toml", "[import]\nmax_rejects = \"0\"\n");
    let line = ["import", "list.csv", "--text", "Hi {{ name }}"];
    let ran = scratch.run(line);
    assert!(
        ran.stderr().contains("1 of 6 rows would be rejected, and `max_rejects` is 0"),
        "{ran}"
    );
    let ran = scratch.run_with(line, &[("SMSQ__IMPORT__MAX_REJECTS", "few")]);
    assert!(
        ran.stderr()
            .contains("invalid value `few` of `import.max_rejects`: expected a share of the rows"),
        "{ran}"
    );
    scratch.run(line.into_iter().chain(["--max-rejects", "20%"])).assert_code(0);
}

#[test]
fn second_campaign_for_a_list_needs_again() {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST);
    let import = |campaign| ["import", "list.csv", "--text", "Hi", "--campaign", campaign];
    scratch.run(import("spring")).assert_code(0);
    let again = scratch.run(import("spring"));
    assert!(again.stdout().contains("accepted    0\n"), "{again}");
    let other = scratch.run(import("summer")).assert_code(2);
    assert!(
        other.stderr().starts_with("error: `list.csv` was imported into campaign `spring` "),
        "{other}"
    );
    assert!(other.stderr().contains("add `--again` to do that"), "{other}");
    assert!(!scratch.run(["status"]).stdout().contains("summer"));
    let meant = scratch.run(import("summer").into_iter().chain(["--again"]));
    assert!(meant.stdout().contains("accepted    4\n"), "{meant}");
}

#[test]
fn dry_run_shows_expensive_characters_and_savings() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", "default_provider = 'sandbox'\n[providers.sandbox]\nkind = 'sandbox'\nurl = 'http://127.0.0.1:9'\n[prices.sandbox]\ncurrency = 'EUR'\n44 = 0.035\n");
    let long = "x".repeat(60);
    scratch.write("list.csv", &format!("phone,name\n+447400123456,Ann\n+447400123457,Ben\n+447400123458,Cai\n+447400123459,Dot\n+447400123460,Eli\n+447400123461,{long}\n+8613800138000,Kim\n"));
    let line = ["import", "list.csv", "--text", "“Sale” – it’s on, dear {{ name }}…", "--dry-run"];
    snapshot!(scratch.run(line), @r#"
    exit 0
    ----- stdout
    list.csv into campaign `list-f72814`
      list        CSV in UTF-8, `,` between the fields, header in line 1
      phone       `phone`
      text        with `name`
      rows        7
      would send  7
      duplicates  0
      suppressed  0
      rejected    0
      segments    8 (0 messages in GSM-7, 7 in UCS-2)
      cost        0.245 EUR, excluding 1 message without a price
      saving      1 segment with `--smart`
      countries   GB +44: 6, CN +86: 1
      sending     without a rate limit
      expensive   `–` (U+2013) makes 7 messages UCS-2, `-` would not
      expensive   `’` (U+2019) makes 7 messages UCS-2, `'` would not
      expensive   `“` (U+201C) makes 7 messages UCS-2, `"` would not
      expensive   `”` (U+201D) makes 7 messages UCS-2, `"` would not
      expensive   `…` (U+2026) makes 7 messages UCS-2, `...` would not

      line 2 to +447400123456: 1 × UCS-2
        “Sale” – it’s on, dear Ann…

      line 3 to +447400123457: 1 × UCS-2
        “Sale” – it’s on, dear Ben…

      line 4 to +447400123458: 1 × UCS-2
        “Sale” – it’s on, dear Cai…

      line 5 to +447400123459: 1 × UCS-2
        “Sale” – it’s on, dear Dot…

      line 6 to +447400123460: 1 × UCS-2
        “Sale” – it’s on, dear Eli…

      longest: line 7 to +447400123461: 2 × UCS-2
        “Sale” – it’s on, dear xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
    ----- stderr
    dry run: nothing was written
    "#);
    let ran = scratch.run(line.into_iter().chain(["--smart", "--format", "json"]));
    assert_eq!(ran.json()["segments"]["ucs2"], 0, "{ran}");
    assert_eq!(ran.json()["saving"], 0, "{ran}");
    assert_eq!(ran.json()["samples"][0]["content"], "\"Sale\" - it's on, dear Ann...", "{ran}");
}

#[test]
fn dry_run_counts_messages_that_would_expire() {
    let scratch = Scratch::new();
    scratch.write("list.csv", LIST).write_cellar("http://127.0.0.1:9");
    let line =
        ["import", "list.csv", "--text", "Hi", "--dry-run", "--at", "+1h", "--expires", "+1min"];
    let rate = [("SMSQ__PROVIDERS__CELLAR__RATE", "2/min")];
    let ran = scratch.run_with(line, &rate);
    assert!(
        ran.stdout().contains(
            "sending     about 2m at 2/min; about 2 messages would expire before they are sent\n"
        ),
        "{ran}"
    );
}

/// Runs at a terminal where the user types `answer`; returns the exit code and the output.
pub(crate) fn at_a_terminal(mut command: Command, answer: &str) -> (Option<i32>, String) {
    let master =
        rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY)
            .expect("a terminal");
    rustix::pty::grantpt(&master).expect("grants");
    rustix::pty::unlockpt(&master).expect("unlocks");
    let name = rustix::pty::ptsname(&master, Vec::new()).expect("its name");
    let open = || {
        File::from(
            rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
                .expect("its other end"),
        )
    };
    let mut child = command.stdin(open()).stdout(open()).stderr(open()).spawn().expect("starts");
    drop(command);
    let mut master = File::from(master);
    master.write_all(answer.as_bytes()).expect("types");
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    // The terminal closes when the program ends.
    while let Ok(read @ 1..) = master.read(&mut piece) {
        seen.extend_from_slice(&piece[..read]);
    }
    let ended = child.wait().expect("ends");
    (ended.code(), String::from_utf8_lossy(&seen).into_owned())
}

#[test]
fn large_campaign_needs_confirmation_at_a_terminal() {
    let scratch = Scratch::new();
    let gateway = Gateway::start(&scratch, &[]);
    let rows: Vec<String> =
        (0..1_200).map(|number| format!("+44740014{:04}\n", 1_000 + number)).collect();
    scratch.write_cellar(&gateway.url).write("list.csv", &format!("phone\n{}", rows.concat()));
    let line = ["run", "list.csv", "--text", "Hi", "--limit", "1"];
    let (code, seen) = at_a_terminal(scratch.command(line), "n\n");
    assert_eq!(code, Some(2), "{seen}");
    assert!(
        seen.contains("would send  1,200") && seen.contains("send 1,200 messages? [y/N]"),
        "{seen}"
    );
    assert!(seen.contains("nothing was written") && !scratch.path("smsq.db").exists(), "{seen}");
    let (code, seen) = at_a_terminal(scratch.command(line), "y\n");
    assert_eq!(code, Some(0), "{seen}");
    let sending = scratch.command(["send", "--rate", "10/min"]);
    let (code, seen) = at_a_terminal(sending, "\n");
    assert_eq!(code, Some(2), "{seen}");
    for shown in [
        "campaign `list-3639ef` by provider `cellar`",
        "would send  1,199",
        "segments    1,199 (1,199 messages in GSM-7, 0 in UCS-2)",
        "at 10/min",
        "to +447400141001: 1 × GSM-7",
        "send 1,199 messages? [y/N]",
        "nothing was sent",
    ] {
        assert!(seen.contains(shown), "{shown}: {seen}");
    }
    let mut never = scratch.command(["send", "--limit", "1"]);
    never.env("SMSQ__IMPORT__ASK_FROM", "0");
    let (code, seen) = at_a_terminal(never, "");
    assert!(code == Some(0) && !seen.contains("[y/N]"), "{seen}");
    let mut soon = scratch.command(["send", "--limit", "1"]);
    soon.env("SMSQ__IMPORT__ASK_FROM", "1");
    let (_, seen) = at_a_terminal(soon, "n\n");
    assert!(seen.contains("would send  1\r\n"), "{seen}");
    let (code, seen) = at_a_terminal(scratch.command(["send", "--yes", "--limit", "1"]), "");
    assert!(code == Some(0) && !seen.contains("[y/N]"), "{seen}");
    scratch.write("more.csv", &format!("phone\n{}", rows.concat()));
    let import = ["import", "more.csv", "--text", "Hi", "--campaign", "other"];
    let (code, seen) = at_a_terminal(scratch.command(import), "y\n");
    assert!(code == Some(0) && seen.contains("Import it into `other` too? [y/N]"), "{seen}");
}

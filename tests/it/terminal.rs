//! Output to a terminal: text from lists, file names and gateways is printed without control characters.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use smsq_message::text::is_printable;

use crate::support::practice::{Practice, list, with_latency};
use crate::support::scripted::Scripted;
use crate::support::{Ran, Scratch};

/// An escape sequence, a C1 control, a bell, an override of the reading direction, an invisible character.
const HOSTILE: &str = "X\u{1b}]0;OWNED\u{7}\u{9b}31m\u{202e}dcba\u{2066}\u{200b}\u{feff}\u{7f}Y";

fn assert_plain(ran: &Ran) {
    for text in [ran.stdout(), ran.stderr()] {
        let bad = text.chars().find(|c| !is_printable(*c) && *c != '\n' && *c != '\t');
        assert_eq!(bad, None, "{text:?}");
    }
}

#[test]
fn hostile_list_never_steers_the_terminal() {
    let scratch = Scratch::new();
    let file = format!("l{HOSTILE}\n.csv");
    let list = format!(
        "phone,name,zone{HOSTILE}\n+447400301000,{HOSTILE},a\n{HOSTILE},Bob,b\n+447400301001,\"two\n{HOSTILE}\",c\n\
         +447400301002,Ann,d\n"
    );
    scratch.write(&file, &list);
    let import = ["import", &file, "--text", "Hi {{ name }}"];
    let looked = scratch.run(import.into_iter().chain(["--dry-run"])).assert_code(0);
    let rejected = "rejected    3 (2 control character, 1 not a phone number)";
    assert!(looked.stdout().contains(rejected), "{looked}");
    assert_plain(&looked);
    let zones = ["--window", "09:00-20:00", "--timezone", "column"];
    for more in [&[][..], &zones] {
        let unknown = format!("missing{HOSTILE}");
        let ran = scratch.run(
            ["import", &file, "--text", &unknown, "--dry-run"]
                .into_iter()
                .chain(more.iter().copied()),
        );
        assert_plain(&ran);
    }
    let imported = scratch.run(import).assert_code(0);
    assert_plain(&imported);
    let reason = format!("asked {HOSTILE}\nline");
    assert_plain(&scratch.run(["suppress", "add", "+447400301009", "--reason", &reason]));
    let listed = scratch.run(["suppress", "list"]);
    assert_eq!(listed.stdout().lines().count(), 1, "{listed}");
    assert_plain(&listed);
    for line in [
        &["status"][..],
        &["check"],
        &["report"],
        &["import", "no", &file],
        &["status", &file],
        &["report", "--format", HOSTILE],
        &["status", "--campaign", &reason],
    ] {
        assert_plain(&scratch.run(line.iter().copied()));
    }
}

#[test]
fn hostile_gateway_never_steers_the_terminal() {
    let scratch = Scratch::new();
    let body =
        serde_json::json!({ "error": { "code": format!("=1{HOSTILE}"), "message": HOSTILE } });
    let gateway = Scripted::start("400 Bad Request", &body.to_string());
    scratch.write_cellar(&gateway.url());
    scratch.import("phone\n+447400301000\n+447400301001\n");
    let sent = scratch.run(["send", "-vv"]).assert_code(1);
    assert_plain(&sent);
    for line in [
        &["report"][..],
        &["report", "--failed"],
        &["report", "--failed", "--format", "json"],
        &["report", "--format", "html"],
        &["providers", "test", "cellar", "--to", "+447400301000", "--text", HOSTILE],
    ] {
        let ran = scratch.run(line.iter().copied());
        assert_plain(&ran);
    }
}

#[test]
fn hostile_text_of_another_program_stays_exact_in_json() {
    let scratch = Scratch::new();
    scratch.import("phone\n+447400301000\n");
    let sql = format!(
        "INSERT INTO sms (phone, content) VALUES ('+447400301{HOSTILE}', 'Hello {HOSTILE}')"
    );
    crate::support::shell::sqlite(&scratch, &sql);
    scratch.run(["cancel", "--campaign", "default"]).assert_code(0);
    for format in ["text", "json", "html"] {
        assert_plain(&scratch.run(["report", "--failed", "--format", format]));
    }
    let failures = scratch.failures("default");
    assert_eq!(failures[0]["content"], format!("Hello {HOSTILE}"));
}

const COLUMNS: usize = 70;

/// The lines that a terminal shows after this was written to it.
fn screen(written: &str) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0_usize, 0_usize);
    let mut rest = written.chars();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' => {
                let mut sequence = String::new();
                for c in rest.by_ref() {
                    sequence.push(c);
                    if c.is_ascii_alphabetic() {
                        break;
                    }
                }
                let count = sequence.trim_matches(|c: char| !c.is_ascii_digit());
                let count: usize = count.parse().unwrap_or(1);
                match sequence.chars().last() {
                    Some('A') => row = row.saturating_sub(count),
                    Some('B') => row += count,
                    Some('K') => lines[row].clear(),
                    _ => {}
                }
            }
            _ => {
                if column == COLUMNS {
                    (row, column) = (row + 1, 0);
                }
                let needed = lines.len().max(row + 1);
                lines.resize(needed, Vec::new());
                let line = &mut lines[row];
                let length = line.len().max(column + 1);
                line.resize(length, ' ');
                line[column] = c;
                column += 1;
            }
        }
        let needed = lines.len().max(row + 1);
        lines.resize(needed, Vec::new());
    }
    lines.into_iter().map(String::from_iter).collect()
}

#[test]
fn progress_bar_is_gone_after_ctrl_c() {
    let gateway = Practice::start(with_latency(400));
    let scratch = gateway.without_references("").imported(&list(40));
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("grants");
    unlockpt(&master).expect("unlocks");
    let name = ptsname(&master, Vec::new()).expect("its name");
    let open = || {
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        File::from(rustix::fs::open(&name, flags, Mode::empty()).expect("its other end"))
    };
    let sized = format!("stty cols {COLUMNS} rows 20 && exec \"$0\" \"$@\"");
    let send = scratch.command(["send", "--concurrency", "4"]);
    let mut command = Command::new("setsid");
    command
        .args(["--ctty", "sh", "-c", &sized])
        .arg(send.get_program())
        .args(send.get_args())
        .current_dir(scratch.path("."))
        .env("TERM", "xterm");
    let mut child =
        command.stdin(open()).stdout(open()).stderr(open()).spawn().expect("setsid starts");
    drop(command);
    let mut master = File::from(master);
    let (mut seen, mut is_typed) = (Vec::new(), false);
    let mut piece = [0; 4096];
    // The terminal hangs up when the program has ended.
    while let Ok(read @ 1..) = master.read(&mut piece) {
        seen.extend_from_slice(&piece[..read]);
        if !is_typed && String::from_utf8_lossy(&seen).contains("4/40") {
            master.write_all(b"\x03").expect("types");
            is_typed = true;
        }
    }
    let ended = child.wait().expect("ends");
    let written = String::from_utf8_lossy(&seen);
    assert_eq!(ended.code(), Some(130), "{written}");
    assert!(written.contains("^C"), "{written}");
    let shown = screen(&written);
    let has = |text: &str| shown.iter().any(|line| line.contains(text));
    assert!(has("stopping: ") && has("`smsq send` continues"), "{shown:#?}");
    assert!(!has("━") && !has("─"), "{shown:#?}");
}

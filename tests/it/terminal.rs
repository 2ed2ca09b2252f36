//! What reaches the terminal: nothing that a list, a file name or a gateway says can steer it.

use smsq::text::is_printable;

use crate::support::scripted::Scripted;
use crate::support::{Ran, Scratch};

/// An escape sequence, a C1 control, a bell, an override of the reading direction, an invisible character.
const HOSTILE: &str = "X\u{1b}]0;OWNED\u{7}\u{9b}31m\u{202e}dcba\u{2066}\u{200b}\u{feff}\u{7f}Y";

fn assert_plain(ran: &Ran) {
    for text in [ran.stdout(), ran.stderr()] {
        let bad = text
            .chars()
            .find(|c| !is_printable(*c) && *c != '\n' && *c != '\t');
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
    let looked = scratch.run(import.into_iter().chain(["--dry-run"]));
    assert_eq!(looked.code(), Some(0), "{looked}");
    let rejected = "rejected    3 (2 a control character, 1 not a phone number)";
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
    let imported = scratch.run(import);
    assert_eq!(imported.code(), Some(0), "{imported}");
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
    let said =
        serde_json::json!({ "error": { "code": format!("=1{HOSTILE}"), "message": HOSTILE } });
    let gateway = Scripted::start("400 Bad Request", &said.to_string());
    scratch.write_cellar(&gateway.url());
    scratch.import("phone\n+447400301000\n+447400301001\n");
    let sent = scratch.run(["send", "-vv"]);
    assert_eq!(sent.code(), Some(1), "{sent}");
    assert_plain(&sent);
    for line in [
        &["report"][..],
        &["report", "--failed"],
        &["report", "--failed", "--format", "json"],
        &["report", "--format", "html"],
        &[
            "providers",
            "test",
            "cellar",
            "--to",
            "+447400301000",
            "--text",
            HOSTILE,
        ],
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
    assert_eq!(
        scratch.run(["cancel", "--campaign", "default"]).code(),
        Some(0)
    );
    for format in ["text", "json", "html"] {
        assert_plain(&scratch.run(["report", "--failed", "--format", format]));
    }
    let failures = scratch.failures("default");
    assert_eq!(failures[0]["content"], format!("Hello {HOSTILE}"));
}

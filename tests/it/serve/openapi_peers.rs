//! The description of the API and the server, checked by programs of others: a validator, a generated client, and schemathesis.
//! `tests/vendors` installs what these tests need, and runs them.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::webhooks::free_address;
use super::{Served, configure};
use crate::support::Scratch;

/// A program of the folder that `tests/vendors` made.
fn program(name: &str) -> Command {
    let folder = std::env::var_os("SMSQ_PEERS").expect("`tests/vendors` sets SMSQ_PEERS");
    Command::new(PathBuf::from(folder).join("venv/bin").join(name))
}

/// A file in `tests/peers`.
fn peer(name: &str) -> String {
    format!("{}/tests/peers/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs `tests/peers/openapi.py`; returns what it prints.
fn openapi(action: &str, served: &Served) -> Vec<u8> {
    let url = format!("http://{}", served.address);
    let output = program("python")
        .args([&peer("openapi.py"), action, &url, &served.tokens["admin"]])
        .output()
        .expect("python starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{action}: {errors}");
    output.stdout
}

#[test]
#[ignore = "needs openapi-spec-validator: run tests/vendors"]
fn validator_accepts_the_document() {
    let scratch = Scratch::new();
    openapi("validate", &Served::start(&scratch));
}

#[test]
#[ignore = "needs openapi-python-client: run tests/vendors"]
fn generated_client_parses_the_answers() {
    let scratch = Scratch::new();
    let parsed = openapi("client", &Served::start(&scratch));
    let parsed: Value = serde_json::from_slice(&parsed).expect("JSON");
    for (name, status, kind) in [
        ("posted", 202, "PostedMessage"),
        ("repeated", 200, "PostedMessage"),
        ("batch", 200, "BatchResult"),
        ("message", 200, "Message"),
        ("found", 200, "FindMessagesResponse200"),
        ("changed", 200, "Campaign"),
        ("campaign", 200, "Campaign"),
        ("campaigns", 200, "GetCampaignsResponse200"),
        ("invalid", 400, "Problem"),
        ("unauthorized", 401, "Problem"),
        ("unknown", 404, "Problem"),
        ("report", 200, "str"),
    ] {
        let answer = &parsed[name];
        assert_eq!(
            (&answer["status"], &answer["kind"]),
            (&json!(status), &json!(kind)),
            "{name}: {answer}"
        );
        if status >= 400 {
            assert_eq!(answer["value"]["status"], status, "{name}: {answer}");
        }
    }
    let value = |name: &str, pointer: &str| parsed[name]["value"][pointer].clone();
    assert_eq!(value("repeated", "id"), value("posted", "id"));
    assert_eq!(value("batch", "accepted"), 1);
    assert_eq!(value("batch", "duplicates"), 1);
    let rejected = &value("batch", "rejected")[0];
    assert_eq!(rejected["line"], 3, "{rejected}");
    let ids = value("batch", "ids");
    assert_eq!((&ids[1], &ids[2]), (&ids[0], &Value::Null), "{ids}");
    assert_eq!(value("message", "phone"), "+447400123456");
    assert_eq!(value("message", "state"), "queued");
    assert_eq!(value("found", "messages")[0], parsed["message"]["value"]);
    for (key, expected) in [
        ("rate", json!("5/s")),
        ("priority", json!(3)),
        ("state", json!("paused")),
        ("queued", json!(2)),
    ] {
        assert_eq!(value("changed", key), expected, "{key}");
        assert_eq!(value("campaign", key), expected, "{key}");
    }
    let report = parsed["report"]["value"].as_str().expect("CSV");
    assert!(report.contains("\npeers,paused,2,2,"), "{report}");
}

#[test]
#[ignore = "needs schemathesis: run tests/vendors"]
fn schemathesis_finds_no_fault() {
    let scratch = Scratch::new();
    let address = free_address();
    // Behind a proxy, so that requests can be of different addresses.
    let tokens = configure(&scratch, &format!("public_url = \"http://{address}\""));
    let served = Served::again(&scratch, tokens, &address);
    let output = program("schemathesis")
        .args(["--config-file", &peer("schemathesis.toml"), "run"])
        .arg(format!("http://{address}/openapi.json"))
        .current_dir(scratch.path(""))
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        .env("PYTHONPATH", peer(""))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SMSQ_TOKEN", &served.tokens["admin"])
        .output()
        .expect("schemathesis starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let ran = served.stop().assert_code(0);
    assert!(!ran.stderr().contains("panicked"), "{ran}");
    scratch.checked_status(None);
}

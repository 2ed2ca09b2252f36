//! Messages over HTTP: one, many, and files.

use std::fmt::Write as _;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Served, configure};
use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::practice::{Practice, list};
use crate::support::running::eventually;
use smsq::sandbox::SandboxConfig;

const MESSAGE: &str = r#"{"phone":"+447400123456","text":"Hello"}"#;

fn id(answer: &Value) -> String {
    answer["id"].as_str().expect("an id").to_owned()
}

#[test]
fn posted_message_is_queued_once_per_key() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let first = served.post(MESSAGE);
        assert_eq!(first.status, 202, "{}", first.body);
        let location = first.header("location").expect("a location");
        assert_eq!(location, format!("/v1/messages/{}", id(&first.json())));
        let second = served.post(MESSAGE);
        assert_ne!(id(&first.json()), id(&second.json()));

        let keyed = |key: &str, json: &str| {
            let headers = [("Idempotency-Key", key)];
            served.api_with("send", "POST", "/v1/messages", &headers, json)
        };
        let accepted = keyed("\"k-1\"", MESSAGE);
        assert_eq!(accepted.status, 202, "{}", accepted.body);
        let repeated = keyed("k-1", MESSAGE);
        assert_eq!(
            (repeated.status, id(&repeated.json())),
            (200, id(&accepted.json()))
        );
        assert_eq!(keyed("k-1", &MESSAGE.replace("Hello", "Bye")).status, 422);

        let own = r#"{"phone":"+447400123456","text":"Hello","dedupe_key":"order-7"}"#;
        let accepted = served.post(own);
        assert_eq!(accepted.status, 202, "{}", accepted.body);
        let repeated = served.post(own);
        assert_eq!(
            (repeated.status, id(&repeated.json())),
            (200, id(&accepted.json()))
        );
        assert_eq!(served.post(&own.replace("Hello", "Bye")).status, 422);
        let elsewhere = own.replace('{', r#"{"campaign":"other","#);
        assert_eq!(served.post(&elsewhere).status, 202);

        let ran = served.stop();
        assert_eq!(ran.code(), Some(0), "{ran}");
        let status = scratch.checked_status(None);
        assert_eq!(status["queued"], 5, "{status}");
    });
}

#[test]
fn posted_message_can_be_looked_up() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let posted = served.post(
            r#"{"phone":"+447400123456","template":"Hi {{ name }}","params":{"name":"Ann"},"campaign":"codes"}"#,
        );
        let path = format!("/v1/messages/{}", id(&posted.json()));
        let found = served.api("send", "GET", &path, "").json();
        assert_eq!(found["state"], "queued", "{found}");
        assert_eq!(found["phone"], "+447400123456");
        assert_eq!(found["campaign"], "codes");
        let masked = served.api("read", "GET", &path, "").json();
        assert_eq!(masked["phone"], "+4474****3456", "{masked}");
        let all = served.api("send", "GET", "/v1/messages?phone=%2B447400123456", "");
        assert_eq!(all.json()["messages"][0]["id"], found["id"], "{}", all.body);
        assert_eq!(
            served.api("send", "GET", "/v1/messages/999999", "").status,
            404
        );
        assert_eq!(served.api("send", "GET", "/v1/messages/x", "").status, 404);
        assert_eq!(served.api("send", "GET", "/v1/messages", "").status, 400);
    });
}

#[test]
fn invalid_message_is_answered_with_the_reason() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    for (json, reason) in [
        ("", "invalid message"),
        ("[]", "invalid message"),
        (r#"{"text":"a"}"#, "missing field `phone`"),
        (r#"{"phone":"+447400123456"}"#, "missing `text`"),
        (r#"{"phone":"12","text":"a"}"#, "not a valid phone number"),
        (
            r#"{"phone":"+447400123456","text":"a","x":1}"#,
            "unknown field `x`",
        ),
        (r#"{"phone":"+447400123456","text":"a\u0000"}"#, "NUL"),
        (r#"{"phone":"+447400123456","template":"{{ a }}"}"#, "`a`"),
        (
            r#"{"phone":"+447400123456","text":"a","due_at":"soon"}"#,
            "invalid `due_at`",
        ),
    ] {
        let answer = served.post(json);
        assert_eq!(answer.status, 400, "{json}: {}", answer.body);
        let kind = answer.header("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{json}");
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains(reason), "{json}: {detail}");
    }
    let headers = [("Idempotency-Key", "")];
    let answer = served.api_with("send", "POST", "/v1/messages", &headers, MESSAGE);
    assert_eq!(answer.status, 400, "{}", answer.body);
    drop(served);
    let status = scratch.checked_status(None);
    assert_eq!(status["imported"], 0, "{status}");
}

#[test]
fn errors_of_the_router_are_problems() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        for (method, path, status) in [
            ("GET", "/v1/campaigns/%FF", 400),
            ("GET", "/v1/campaigns/%00", 400),
            ("GET", "/v1/messages?phone=1&x=2", 400),
            ("GET", "/v1/messages?reference=a%00", 400),
            ("GET", "/v1/campaigns/c/report.csv?list=sent&list=sent", 400),
            ("POST", "/v1/imports", 400),
            ("DELETE", "/v1/messages", 405),
            ("GET", "/v1/messages/batch", 405),
        ] {
            let answer = served.api("admin", method, path, "");
            assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
            let kind = answer.header("content-type");
            assert_eq!(kind, Some("application/problem+json"), "{method} {path}");
            assert_eq!(answer.json()["status"], status, "{}", answer.body);
            let has_allow = answer.header("allow").is_some();
            assert_eq!(has_allow, status == 405, "{}", answer.head);
        }
    });
}

#[test]
fn suppressed_phone_is_answered_as_failed() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let added = scratch.run(["suppress", "add", "+447400123456"]);
    assert_eq!(added.code(), Some(0), "{added}");
    let answer = served.post(MESSAGE);
    assert_eq!(answer.status, 202, "{}", answer.body);
    let answer = answer.json();
    assert_eq!(
        (&answer["state"], &answer["class"]),
        (&json!("failed"), &json!("suppressed"))
    );
    assert_eq!(answer["id"], Value::Null);
}

fn lines(count: u32) -> String {
    let mut lines = String::new();
    for index in 0..count {
        let _ = writeln!(
            lines,
            r#"{{"phone":"+4474001{index:05}","text":"Number {index}","dedupe_key":"{index}"}}"#
        );
    }
    lines
}

const NDJSON: [(&str, &str); 1] = [("Content-Type", "application/x-ndjson")];

#[test]
fn batch_of_any_length_is_queued_and_can_be_repeated() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let batch = lines(2_500) + "{\"phone\":\"12\",\"text\":\"a\"}\n\nnot json\n";
        let post = || {
            let answer = served.api_with("send", "POST", "/v1/messages/batch", &NDJSON, &batch);
            assert_eq!(answer.status, 200, "{}", answer.body);
            answer.json()
        };
        let first = post();
        assert_eq!(first["accepted"], 2_500);
        assert_eq!(first["rejected_count"], 2);
        assert_eq!(first["rejected"][0]["line"], 2_501);
        assert_eq!(first["rejected"][1]["line"], 2_503);
        let ids = first["ids"].as_array().expect("ids");
        assert_eq!(ids.len(), 2_502);
        let again = post();
        assert_eq!(
            (&again["accepted"], &again["duplicates"]),
            (&json!(0), &json!(2_500))
        );
        assert_eq!(again["ids"], first["ids"]);

        // Each id belongs to its line.
        for index in [0, 999, 1_000, 2_499] {
            let id = ids[index].as_str().expect("an id");
            let found = served
                .api("send", "GET", &format!("/v1/messages/{id}"), "")
                .json();
            assert_eq!(found["phone"], format!("+4474001{index:05}"), "{found}");
        }
        drop(served);
        assert_eq!(scratch.checked_status(None)["queued"], 2_500);
    });
}

#[test]
fn batch_can_be_a_json_list() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let json = [("Content-Type", "application/json")];
    let post = |body: &str| served.api_with("send", "POST", "/v1/messages/batch", &json, body);
    let answer = post(&format!("[{MESSAGE}, {MESSAGE}]"));
    assert_eq!(answer.json()["accepted"], 2, "{}", answer.body);
    assert_eq!(post("{}").status, 400);
    assert_eq!(post("[").status, 400);
    let many = vec![MESSAGE; 1_001].join(",");
    assert_eq!(post(&format!("[{many}]")).status, 413);
    let other = served.api("send", "POST", "/v1/messages/batch", MESSAGE);
    assert_eq!(other.status, 415, "{}", other.body);
    let key = [NDJSON[0], ("Idempotency-Key", "k")];
    let answer = served.api_with("send", "POST", "/v1/messages/batch", &key, MESSAGE);
    assert_eq!(answer.status, 400, "{}", answer.body);
}

#[test]
fn messages_of_one_batch_go_to_their_campaigns_and_times() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let batch = r#"{"phone":"+447400123456","text":"a","campaign":"one"}
{"phone":"+447400123457","text":"b","campaign":"two","due_at":"2099-01-01T00:00:00Z"}
{"phone":"+447400123458","text":"c","campaign":"one","expires_at":"2099-01-02T00:00:00Z"}
"#;
    let answer = served.api_with("send", "POST", "/v1/messages/batch", &NDJSON, batch);
    assert_eq!(answer.json()["accepted"], 3, "{}", answer.body);
    drop(served);
    let status = scratch.checked_status(None);
    let campaigns = status["campaigns"].as_array().expect("campaigns");
    let named = |name: &str| campaigns.iter().find(|one| one["campaign"] == name);
    assert_eq!(named("one").expect("one")["queued"], 2);
    assert_eq!(named("two").expect("two")["due_at"], "2099-01-01T00:00:00Z");
}

#[test]
fn too_many_waiting_messages_are_refused() {
    let scratch = Scratch::new();
    let served = Served::with(&scratch, "max_waiting = 3");
    let mut accepted = 0;
    // What waits is counted once a second.
    eventually("it is full", || {
        let answer = served.post(MESSAGE);
        match answer.status {
            202 => accepted += 1,
            429 => {
                assert!(answer.header("retry-after").is_some(), "{}", answer.head);
                return true;
            }
            other => panic!("{other}: {}", answer.body),
        }
        false
    });
    assert!(accepted >= 3, "{accepted}");
    let elsewhere = MESSAGE.replace('{', r#"{"campaign":"other","#);
    assert_eq!(served.post(&elsewhere).status, 202, "other campaigns go on");
}

const FORM: [(&str, &str); 1] = [("Content-Type", "multipart/form-data; boundary=x")];

/// The body of an upload: the fields, and the file under a name.
fn form(fields: &[(&str, &str)], name: &str, file: &str) -> String {
    let mut body = String::new();
    for (field, value) in fields {
        let _ = write!(
            body,
            "--x\r\nContent-Disposition: form-data; name=\"{field}\"\r\n\r\n{value}\r\n"
        );
    }
    body + &format!(
        "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{file}\r\n--x--\r\n"
    )
}

/// Uploads a form; returns where its state is.
fn upload(served: &Served, form: &str) -> String {
    let answer = served.api_with("send", "POST", "/v1/imports", &FORM, form);
    assert_eq!(answer.status, 202, "{}", answer.body);
    answer.header("location").expect("a location").to_owned()
}

/// The state of an upload when it is over.
fn imported(served: &Served, path: &str) -> Value {
    let mut state = Value::Null;
    eventually("it is imported", || {
        state = served.api("send", "GET", path, "").json();
        state["state"] != "running"
    });
    state
}

#[test]
fn uploaded_file_is_imported_with_its_rejects() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let fields = [
            ("text", "Hi {{ name }}"),
            ("region", "GB"),
            ("campaign", "up"),
        ];
        let list = "phone,name\n07400 123456,Ann\n12,Bob\n";
        let body = form(&fields, "../../list.csv", list);
        let path = upload(&served, &body);
        let state = imported(&served, &path);
        assert_eq!(
            (&state["accepted"], &state["rejected"], &state["file"]),
            (&json!(1), &json!(1), &json!("list.csv")),
            "{state}"
        );
        let rejects = served.api("send", "GET", &format!("{path}/rejects.csv"), "");
        assert!(rejects.body.contains("12,Bob"), "{}", rejects.body);

        // The page of the campaign has them too, for who may see phones.
        let cookie = served.log_in("operate");
        let shown = "Rejected rows of list.csv (1)";
        let page = served.until_shown(&cookie, "/campaigns/up", shown);
        let link = path.replace("/v1", "") + "/rejects.csv";
        assert!(page.contains(&link) && !page.contains("-uploads"), "{page}");
        assert!(served.page(&cookie, &link).body.contains("12,Bob"));
        let viewer = served.log_in("read");
        assert_eq!(served.page(&viewer, &link).status, 403);
        assert!(!served.page(&viewer, "/campaigns/up").body.contains(shown));

        for (before, after) in [("name=\"region\"", "name=\"template\""), ("GB", "Atlantis")] {
            let wrong = body.replace(before, after);
            let answer = served.api_with("send", "POST", "/v1/imports", &FORM, &wrong);
            assert_eq!(answer.status, 400, "{}", answer.body);
        }
        for unknown in ["7", "../1", "%2e%2e", "00000000000000000000"] {
            let answer = served.api("send", "GET", &format!("/v1/imports/{unknown}"), "");
            assert_eq!(answer.status, 404, "{unknown}: {}", answer.body);
        }
        drop(served);
        assert_eq!(scratch.checked_status(Some("up"))["queued"], 1);
    });
}

#[test]
fn uploads_are_imported_after_a_kill_or_a_stop() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let tokens = served.tokens.clone();
        let rows = 5_000;
        let upload_to = |served: &Served, campaign: &str| {
            let fields = [("text", "Hi"), ("campaign", campaign), ("unique", "none")];
            let list = list(rows).replace("+4474", if campaign == "a" { "+4474" } else { "+4475" });
            upload(served, &form(&fields, "list.csv", &list))
        };
        // The second waits for the first, so it has not begun.
        let paths = ["a", "b"].map(|campaign| upload_to(&served, campaign));
        served.process.kill();
        let served = Served::again(&scratch, tokens.clone(), "127.0.0.1:0");
        let ran = served.stop();
        assert_eq!(ran.code(), Some(0), "{ran}");
        let served = Served::again(&scratch, tokens, "127.0.0.1:0");
        for path in &paths {
            let state = imported(&served, path);
            assert_eq!(state["state"], "done", "{state}");
        }
        drop(served);
        for campaign in ["a", "b"] {
            let status = scratch.checked_status(Some(campaign));
            assert_eq!(status["queued"], rows, "{status}");
        }
    });
}

#[test]
fn uploaded_file_may_be_named_like_its_rejects() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let body = form(
        &[("text", "Hi")],
        "rejects.csv",
        "phone\n+447400123456\n12\n",
    );
    let path = upload(&served, &body);
    let state = imported(&served, &path);
    assert_eq!(
        (&state["accepted"], &state["rejected"]),
        (&json!(1), &json!(1)),
        "{state}"
    );
    let rejects = served.api("send", "GET", &format!("{path}/rejects.csv"), "");
    assert!(!rejects.body.contains("+447400123456"), "{}", rejects.body);
    let path = upload(&served, &body.replace("12\n", ""));
    assert_eq!(imported(&served, &path)["state"], "done");
    let answer = served.api("send", "GET", &format!("{path}/rejects.csv"), "");
    assert_eq!(answer.status, 404, "{}", answer.body);
}

#[test]
fn cancelled_campaign_is_not_changed_and_takes_no_message() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    served.post(&MESSAGE.replace('{', r#"{"campaign":"c","#));
    let ran = scratch.run(["cancel", "--campaign", "c"]);
    assert_eq!(ran.code(), Some(0), "{ran}");
    let change = r#"{"priority":7,"paused":true}"#;
    let answer = served.api("operate", "PATCH", "/v1/campaigns/c", change);
    assert_eq!(answer.status, 409, "{}", answer.body);
    let message = MESSAGE.replace('{', r#"{"campaign":"c","#);
    // What was read about the campaign is used for a second.
    eventually("no message is queued", || {
        served.post(&message).status == 409
    });
    let answer = served.api_with("send", "POST", "/v1/messages/batch", &NDJSON, &message);
    assert_eq!(answer.json()["rejected_count"], 1, "{}", answer.body);
    let seen = served.api("read", "GET", "/v1/campaigns/c", "").json();
    assert_eq!(
        (&seen["priority"], &seen["state"]),
        (&json!(0), &json!("cancelled")),
        "{seen}"
    );
}

#[test]
fn worker_sends_what_was_posted() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = Scratch::at(&db.url);
        gateway.configure_without_references(&scratch, "");
        let served = Served::start(&scratch);
        let mut worker = scratch.start(["send", "--follow", "--quiet", "--format", "json"]);
        let posted = served.post(MESSAGE).json();
        let path = format!("/v1/messages/{}", id(&posted));
        let sent = worker.until("it is sent", || {
            served.api("send", "GET", &path, "").json()["state"] == "sent"
        });
        assert!(sent, "the worker ended");
        // The campaign did not exist when the worker started.
        worker.signal(Signal::INT);
        let summary = worker.ended().json();
        assert_eq!(summary["campaigns"][0]["sent"], 1, "{summary}");
    });
}

#[test]
fn campaign_is_changed_over_the_api() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        served.post(&MESSAGE.replace('{', r#"{"campaign":"c","#));
        let change = |role: &str, json: &str| served.api(role, "PATCH", "/v1/campaigns/c", json);
        let changed = change("operate", r#"{"rate":"5/s","priority":3,"paused":true}"#);
        assert_eq!(changed.status, 200, "{}", changed.body);
        let changed = changed.json();
        assert_eq!(
            (&changed["rate"], &changed["state"]),
            (&json!("5/s"), &json!("paused"))
        );
        assert_eq!(
            change("operate", r#"{"paused":false,"rate":"none"}"#).status,
            200
        );
        for bad in [
            r#"{"rate":"fast"}"#,
            format!(r#"{{"rate":"{}"}}"#, vec!["1/s"; 300].join(",")).as_str(),
            r#"{"window":"at night"}"#,
            r#"{"x":1}"#,
            "{",
        ] {
            assert_eq!(change("operate", bad).status, 400, "{bad}");
        }
        assert_eq!(change("read", r#"{"priority":1}"#).status, 403);
        assert_eq!(
            served
                .api("operate", "PATCH", "/v1/campaigns/d", "{}")
                .status,
            404
        );
        let seen = served.api("read", "GET", "/v1/campaigns/c", "").json();
        assert_eq!(
            (&seen["priority"], &seen["state"]),
            (&json!(3), &json!("active")),
            "{seen}"
        );
        let csv = served.api("read", "GET", "/v1/campaigns/c/report.csv?list=figures", "");
        assert!(csv.body.starts_with("campaign,"), "{}", csv.body);
        assert_eq!(
            served
                .api("read", "GET", "/v1/campaigns/c/report.csv?list=x", "")
                .status,
            400
        );
    });
}

#[test]
fn description_of_the_api_names_every_address() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let described = served.api("", "GET", "/openapi.json", "").json();
    assert_eq!(described["openapi"], "3.1.0");
    let paths = described["paths"].as_object().expect("paths");
    for (path, methods) in paths {
        for method in methods.as_object().expect("methods").keys() {
            let path = path.replace("{id}", "1").replace("{name}", "c");
            let answer = served.api("", &method.to_uppercase(), &path, "");
            assert_eq!(answer.status, 401, "{method} {path}: {}", answer.body);
        }
    }
    let answer = served.api("send", "DELETE", "/v1/messages", "");
    assert_eq!(answer.status, 405, "{}", answer.body);
}

#[test]
fn tokens_are_read_again_after_a_restart() {
    let scratch = Scratch::new();
    let tokens = configure(&scratch, "");
    let served = Served::again(&scratch, tokens.clone(), "127.0.0.1:0");
    assert_eq!(served.post(MESSAGE).status, 202);
    drop(served);
    let served = Served::again(&scratch, tokens, "127.0.0.1:0");
    assert_eq!(served.post(MESSAGE).status, 202);
}

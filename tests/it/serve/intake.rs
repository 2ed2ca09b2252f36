//! Messages over HTTP: one, many, and files.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use smsq_sandbox::SandboxConfig;

use super::{Served, configure};
use crate::support::Scratch;
use crate::support::client::Client;
use crate::support::databases::{Database, with_every_database};
use crate::support::practice::{Practice, list};
use crate::support::shell::sqlite;
use crate::support::waiting::eventually;

const MESSAGE: &str = r#"{"phone":"+447400123456","text":"Hello"}"#;

fn id(answer: &Value) -> String {
    answer["id"].as_str().expect("an id").to_owned()
}

#[test]
fn posted_message_is_queued_once_per_key() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let first = served.post(MESSAGE).assert_status(202);
        let location = first.header("location").expect("a location");
        assert_eq!(location, format!("/v1/messages/{}", id(&first.json())));
        let second = served.post(MESSAGE);
        assert_ne!(id(&first.json()), id(&second.json()));

        let keyed = |key: &str, json: &str| {
            let headers = [("Idempotency-Key", key)];
            served.api_with("send", "POST", "/v1/messages", &headers, json)
        };
        let accepted = keyed("\"k-1\"", MESSAGE).assert_status(202);
        let repeated = keyed("k-1", MESSAGE);
        assert_eq!((repeated.status, id(&repeated.json())), (200, id(&accepted.json())));
        assert_eq!(keyed("k-1", &MESSAGE.replace("Hello", "Bye")).status, 422);

        let own = r#"{"phone":"+447400123456","text":"Hello","dedupe_key":"order-7"}"#;
        let accepted = served.post(own).assert_status(202);
        let repeated = served.post(own);
        assert_eq!((repeated.status, id(&repeated.json())), (200, id(&accepted.json())));
        assert_eq!(served.post(&own.replace("Hello", "Bye")).status, 422);
        let elsewhere = own.replace('{', r#"{"campaign":"other","#);
        assert_eq!(served.post(&elsewhere).status, 202);

        served.stop().assert_code(0);
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
        assert_eq!(served.api("send", "GET", "/v1/messages/999999", "").status, 404);
        assert_eq!(served.api("send", "GET", "/v1/messages/x", "").status, 404);
        assert_eq!(served.api("send", "GET", "/v1/messages", "").status, 400);
    });
}

#[test]
fn invalid_message_is_answered_with_the_reason() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    for (json, reason) in [
        ("", "invalid message: it is not JSON"),
        ("[]", "invalid message: it is not a JSON object"),
        (r#"{"phone":"ga rbage","text":"a"}"#, "`ga rbage`"),
        (
            r#"{"phone":"+447400123456","text":"a","expires_at":"2020-01-01T00:00:00Z"}"#,
            "invalid `expires_at`: it is in the past",
        ),
        (r#"{"text":"a"}"#, "missing field `phone`"),
        (r#"{"phone":"+447400123456"}"#, "missing field `text`"),
        (r#"{"phone":"12","text":"a"}"#, "not a valid phone number"),
        (r#"{"phone":"+447400123456","text":"a","x":1}"#, "unknown field `x`"),
        (r#"{"phone":"+447400123456","text":"a\u0000"}"#, "invalid `text`"),
        (r#"{"phone":"+447400123456","template":"{{ a }}"}"#, "`a`"),
        (r#"{"phone":"+447400123456","text":"a","due_at":"soon"}"#, "invalid `due_at`"),
    ] {
        let answer = served.post(json);
        assert_eq!(answer.status, 400, "{json}: {}", answer.body);
        let kind = answer.header("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{json}");
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains(reason), "{json}: {detail}");
    }
    let headers = [("Idempotency-Key", "")];
    served.api_with("send", "POST", "/v1/messages", &headers, MESSAGE).assert_status(400);
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
            assert_eq!(has_allow, status == 405, "{:?}", answer.headers);
        }
    });
}

#[test]
fn suppressed_phone_is_answered_as_failed() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    scratch.run(["suppress", "add", "+447400123456"]).assert_code(0);
    let answer = served.post(MESSAGE).assert_status(202);
    let answer = answer.json();
    assert_eq!((&answer["state"], &answer["class"]), (&json!("failed"), &json!("suppressed")));
    assert_eq!(answer["id"], Value::Null);
}

#[test]
fn message_to_a_dead_number_is_refused() {
    let scratch = Scratch::new();
    scratch.write_cellar("http://127.0.0.1:1");
    let toml = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("[limits]\nskip_dead = \"180d\"\n{toml}"));
    let served = Served::start(&scratch);
    sqlite(&scratch, "INSERT INTO dead VALUES ('+447400123456', '21211', 'cellar', 9000000000000)");
    let answer = served.post(MESSAGE).assert_status(400);
    let reason = "the number does not exist, as a provider said";
    assert!(answer.body.contains(reason), "{}", answer.body);
    let line = r#"{"phone":"+447400123456","text":"Hi"}"#;
    let batch = served.api_with("send", "POST", "/v1/messages/batch", &NDJSON, line);
    let rejected = &batch.json()["rejected"][0];
    assert_eq!(rejected["line"], 1, "{}", batch.body);
    assert!(batch.body.contains(reason), "{}", batch.body);
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
            let answer = served
                .api_with("send", "POST", "/v1/messages/batch", &NDJSON, &batch)
                .assert_status(200);
            answer.json()
        };
        let first = post();
        assert_eq!(first["accepted"], 2_500);
        assert_eq!(first["rejected_count"], 2);
        assert_eq!(first["rejected"][0]["line"], 2_501);
        assert_eq!(first["rejected"][1]["line"], 2_503);
        let ids = first["ids"].as_array().expect("ids");
        // By line, also of the one that is empty.
        assert_eq!(ids.len(), 2_503);
        assert_eq!(&ids[2_500..], [Value::Null, Value::Null, Value::Null]);
        let again = post();
        assert_eq!((&again["accepted"], &again["duplicates"]), (&json!(0), &json!(2_500)));
        assert_eq!(again["ids"], first["ids"]);

        // Each id belongs to its line.
        for index in [0, 999, 1_000, 2_499] {
            let id = ids[index].as_str().expect("an id");
            let found = served.api("send", "GET", &format!("/v1/messages/{id}"), "").json();
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
    served.api("send", "POST", "/v1/messages/batch", MESSAGE).assert_status(415);
    let key = [NDJSON[0], ("Idempotency-Key", "k")];
    served.api_with("send", "POST", "/v1/messages/batch", &key, MESSAGE).assert_status(400);
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
                assert!(answer.header("retry-after").is_some(), "{:?}", answer.headers);
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

#[test]
fn posts_create_no_more_campaigns_than_allowed() {
    let scratch = Scratch::new();
    let served = Served::with(&scratch, "max_campaigns = 3");
    let to = |campaign: &str| MESSAGE.replace('{', &format!(r#"{{"campaign":"{campaign}","#));
    // There is the one called `default`.
    for campaign in ["a", "b"] {
        assert_eq!(served.post(&to(campaign)).status, 202, "{campaign}");
    }
    let refused = served.post(&to("c")).assert_status(429);
    assert!(refused.body.contains("serve.max_campaigns"), "{}", refused.body);
    let list = form(&[("campaign", "c"), ("text", "Hi")], "list.csv", "phone\n+447400123456\n");
    served.api_with("send", "POST", "/v1/imports", &FORM, &list).assert_status(429);
    assert_eq!(served.post(&to("b")).status, 202);
    // The limit is that of clients.
    scratch.write("own.csv", "phone\n+447400123456\n");
    scratch.run(["import", "own.csv", "--text", "Hi", "--campaign", "own"]).assert_code(0);
    assert_eq!(served.post(&to("own")).status, 202);
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
    let answer = served.api_with("send", "POST", "/v1/imports", &FORM, form).assert_status(202);
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
        let fields = [("text", "Hi {{ name }}"), ("region", "GB"), ("campaign", "up")];
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
        let shown = "rejected rows of list.csv (1)";
        let page = served.until_shown(&cookie, "/campaigns/up", shown);
        let link = path.replace("/v1", "") + "/rejects.csv";
        assert!(page.contains(&link) && !page.contains("-uploads"), "{page}");
        assert!(served.page(&cookie, &link).body.contains("12,Bob"));
        let viewer = served.log_in("read");
        assert_eq!(served.page(&viewer, &link).status, 403);
        assert!(!served.page(&viewer, "/campaigns/up").body.contains(shown));

        for (before, after) in [("name=\"region\"", "name=\"template\""), ("GB", "Atlantis")] {
            let wrong = body.replace(before, after);
            served.api_with("send", "POST", "/v1/imports", &FORM, &wrong).assert_status(400);
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
        served.stop().assert_code(0);
        let served = Served::again(&scratch, tokens, "127.0.0.1:0");
        for path in &paths {
            let state = imported(&served, path);
            assert_eq!(state["state"], "done", "{state}");
            // Those that were stored before the kill, too.
            let counts = [&state["accepted"], &state["duplicates"]];
            assert_eq!(counts, [&json!(rows), &json!(0)], "{state}");
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
    let body = form(&[("text", "Hi")], "rejects.csv", "phone\n+447400123456\n12\n");
    let path = upload(&served, &body);
    let state = imported(&served, &path);
    assert_eq!((&state["accepted"], &state["rejected"]), (&json!(1), &json!(1)), "{state}");
    let rejects = served.api("send", "GET", &format!("{path}/rejects.csv"), "");
    assert!(!rejects.body.contains("+447400123456"), "{}", rejects.body);
    let path = upload(&served, &body.replace("12\n", ""));
    assert_eq!(imported(&served, &path)["state"], "done");
    served.api("send", "GET", &format!("{path}/rejects.csv"), "").assert_status(404);
}

#[test]
fn cancelled_campaign_is_not_changed_and_takes_no_message() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let message = MESSAGE.replace('{', r#"{"campaign":"c","#);
        let keyed = message.replace('{', r#"{"dedupe_key":"k","#);
        assert_eq!(served.post(&message).status, 202);
        let known = served.post(&keyed).json();
        scratch.run(["cancel", "--campaign", "c"]).assert_code(0);
        let change = r#"{"priority":7,"paused":true}"#;
        served.api("operate", "PATCH", "/v1/campaigns/c", change).assert_status(409);
        // What was read about the campaign before is not used.
        served.post(&message).assert_status(409);
        let answer = served.api_with("send", "POST", "/v1/messages/batch", &NDJSON, &message);
        assert_eq!(answer.json()["rejected_count"], 1, "{}", answer.body);
        let repeated = served.post(&keyed).assert_status(200);
        let repeated = repeated.json();
        assert_eq!((&repeated["id"], &repeated["state"]), (&known["id"], &json!("cancelled")));
        let seen = served.api("read", "GET", "/v1/campaigns/c", "").json();
        assert_eq!((&seen["priority"], &seen["state"]), (&json!(0), &json!("cancelled")), "{seen}");
        let status = scratch.checked_status(Some("c"));
        assert_eq!((&status["queued"], &status["imported"]), (&json!(0), &json!(2)));
    });
}

#[test]
fn names_of_a_schedules_campaigns_are_refused_to_tokens() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let columns = "name, cron, timezone, source, query, unique_by, per, options, catch_up, fire, period, next_at, created_at, created_by";
    let values = "'s', '0 9 * * *', 'UTC', 'crm', 'SELECT 1', 'id', 'day', '{}', 0, 'x', 'x', 9000000000000000, 0, 'ann'";
    sqlite(&scratch, &format!("INSERT INTO schedule ({columns}) VALUES ({values})"));
    let message = r#"{"campaign":"s/2026-11-28","phone":"+447400123456","text":"x","from":"EVIL"}"#;
    let reserved = "the name `s/2026-11-28` belongs to schedule `s`";
    for role in ["send", "admin"] {
        let answer = served.api(role, "POST", "/v1/messages", message).assert_status(409);
        assert!(answer.body.contains(reserved), "{}", answer.body);
        let list = format!("[{message}]");
        let json = [("Content-Type", "application/json")];
        let answer = served.api_with(role, "POST", "/v1/messages/batch", &json, &list);
        assert!(answer.body.contains(reserved), "{}", answer.body);
        let fields = [("campaign", "s/2026-11-28"), ("text", "Hello")];
        let body = form(&fields, "list.csv", "phone\n+447400123456\n");
        let answer = served.api_with(role, "POST", "/v1/imports", &FORM, &body).assert_status(202);
        let path = answer.header("location").expect("a location");
        let mut state = Value::Null;
        eventually("it ends", || {
            state = served.api(role, "GET", path, "").json();
            state["state"] != "running"
        });
        assert!(state.to_string().contains(reserved), "{state}");
    }
    let names = sqlite(&scratch, "SELECT count(*) FROM campaign WHERE name LIKE 's/%'");
    assert_eq!(names, "0");
}

#[test]
fn post_without_a_key_is_never_a_duplicate() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let code = MESSAGE.replace('{', r#"{"campaign":"codes","#);
        assert_eq!(served.post(&code).status, 202);
        // Lists make the campaign one with a message per phone.
        scratch.write("list.csv", "phone\n+447400123456\n+447400123457\n");
        let import = ["import", "list.csv", "--campaign", "codes", "--text", "Hi"];
        scratch.run(import).assert_code(0);
        let fields = [("text", "Hi"), ("campaign", "codes")];
        let list = "phone\n+447400123457\n+447400123458\n";
        let state = imported(&served, &upload(&served, &form(&fields, "b.csv", list)));
        assert_eq!((&state["accepted"], &state["duplicates"]), (&json!(1), &json!(1)), "{state}");
        for phone in ["+447400123456", "+447400123457", "+447400123458"] {
            let answer = served.post(&code.replace("+447400123456", phone));
            assert_eq!(answer.status, 202, "{phone}: {}", answer.body);
            let path = format!("/v1/messages/{}", id(&answer.json()));
            let found = served.api("send", "GET", &path, "").json();
            assert_eq!(found["phone"], phone, "{found}");
        }
        let batch = format!("{code}\n{code}\n");
        let answer = served.api_with("send", "POST", "/v1/messages/batch", &NDJSON, &batch);
        assert_eq!(answer.json()["accepted"], 2, "{}", answer.body);
        drop(served);
        assert_eq!(scratch.checked_status(Some("codes"))["queued"], 1 + 2 + 1 + 3 + 2);
    });
}

#[test]
fn duplicate_that_is_not_known_any_more_is_not_queued() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let keyed = MESSAGE.replace('{', r#"{"dedupe_key":"order-7","#);
        assert_eq!(served.post(&keyed).status, 202);
        // As it is after a day.
        db.run("DELETE FROM intake_key");
        let answer = served.post(&keyed).assert_status(409);
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains("duplicate `dedupe_key`"), "{detail}");
        let answer = served.api_with("send", "POST", "/v1/messages/batch", &NDJSON, &keyed);
        let answer = answer.json();
        assert_eq!(
            (&answer["accepted"], &answer["duplicates"], &answer["ids"]),
            (&json!(0), &json!(1), &json!([null]))
        );
        drop(served);
        assert_eq!(scratch.checked_status(None)["queued"], 1);
    });
}

#[test]
fn equal_messages_are_known_however_they_are_written() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let first =
            r#"{"phone":"+447400123456","text":"a","params":{"x":"1","y":"2"},"dedupe_key":"k"}"#;
        let again = r#"{"dedupe_key": "k", "params": {"y": "2", "x": "1"}, "text": "a", "phone": "+44 7400 123456"}"#;
        let accepted = served.post(first).assert_status(202);
        let repeated = served.post(&format!("{again}\r\n"));
        assert_eq!((repeated.status, id(&repeated.json())), (200, id(&accepted.json())));
        let answer = served.api_with("send", "POST", "/v1/messages/batch", &NDJSON, again);
        assert_eq!(answer.json()["ids"], json!([id(&accepted.json())]));
        let other = again.replace("\"2\"", "\"3\"");
        assert_eq!(served.post(&other).status, 422);
        drop(served);
        assert_eq!(scratch.checked_status(None)["queued"], 1);
    });
}

/// Uploads a form with the token of a role; returns the status and the explanation.
fn try_upload(served: &Served, role: &str, form: &str) -> (u16, String) {
    let answer = served.api_with(role, "POST", "/v1/imports", &FORM, form);
    (answer.status, answer.body)
}

#[test]
fn fields_of_an_upload_need_their_role() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let list = "phone;name\n+447400123456;Ann\n";
    let of_the_list = [
        ("campaign", "up"),
        ("text", "Hi {{ who }}"),
        ("column", "who=name"),
        ("region", "GB"),
        ("international", "true"),
        ("national", "false"),
        ("smart", "true"),
        ("unique", "none"),
        ("at", "+2h"),
        ("expires", "+8h"),
        ("delimiter", ";"),
        ("encoding", "utf-8"),
    ];
    let of_the_campaign = [
        ("provider", "cellar"),
        ("from", "SHOP"),
        ("window", "09:00-20:00"),
        ("days", "mon-fri"),
        ("timezone", "Europe/Berlin"),
        ("fallback-timezone", "Europe/Berlin"),
        ("max-rejects", "100%"),
        ("again", "true"),
    ];
    for role in ["read", "operate"] {
        let (status, body) = try_upload(&served, role, &form(&of_the_list, "a.csv", list));
        assert_eq!(status, 403, "{body}");
        assert!(body.contains("role `send` or `admin`"), "{body}");
    }
    let path = upload(&served, &form(&of_the_list, "a.csv", list));
    let state = imported(&served, &path);
    assert_eq!(state["accepted"], 1, "{state}");
    for field in of_the_campaign {
        let body = form(&[("text", "Hi"), field], "b.csv", list);
        let (status, body) = try_upload(&served, "send", &body);
        assert_eq!(status, 403, "{field:?}: {body}");
        let reason = format!("field `{}`: this needs a token of role `admin`", field.0);
        assert!(body.contains(&reason), "{body}");
    }
    let all = [&of_the_list[..2], &of_the_list[2..3], &of_the_campaign[..]].concat();
    let (status, body) = try_upload(&served, "admin", &form(&all, "c.csv", list));
    assert_eq!(status, 202, "{body}");
    for unknown in ["template", "rejects", "file-name", "config", "yes"] {
        let (status, body) = try_upload(&served, "admin", &form(&[(unknown, "1")], "d.csv", list));
        assert_eq!(status, 400, "{unknown}: {body}");
        assert!(body.contains("unknown field"), "{body}");
    }
}

#[test]
fn upload_of_a_sender_keeps_what_a_campaign_is() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        scratch.write("list.csv", "phone\n+447400123456\n");
        let import = ["import", "list.csv", "--campaign", "victim", "--text", "Hi"];
        let window = ["--window", "09:00-20:00", "--timezone", "Europe/London"];
        let settings = ["--from", "SHOP"].into_iter().chain(window);
        scratch.run(import.into_iter().chain(settings)).assert_code(0);
        scratch.run(["cancel", "--campaign", "victim"]).assert_code(0);
        let campaign = || served.api("admin", "GET", "/v1/campaigns/victim", "").json();
        let before = campaign();
        let list = "phone\n+447400123457\n";
        let body = form(&[("text", "Hi"), ("campaign", "victim")], "b.csv", list);
        for role in ["send", "admin"] {
            let (status, answer) = try_upload(&served, role, &body);
            assert_eq!(status, 409, "{role}: {answer}");
        }
        assert_eq!(campaign()["state"], "cancelled");
        let resume = r#"{"paused":false}"#;
        served.api("operate", "PATCH", "/v1/campaigns/victim", resume).assert_status(200);
        let state = imported(&served, &upload(&served, &body));
        assert_eq!(state["accepted"], 1, "{state}");
        let after = campaign();
        for setting in ["from", "provider", "window", "rate", "priority"] {
            assert_eq!(after[setting], before[setting], "{setting}");
        }

        // Who may change campaigns does it on the record.
        let fields = [("text", "Hi"), ("campaign", "victim"), ("from", "OTHER")];
        let list = "phone\n+447400123458\n";
        let (status, answer) = try_upload(&served, "admin", &form(&fields, "c.csv", list));
        assert_eq!(status, 202, "{answer}");
        eventually("the sender is another one", || campaign()["from"] == "OTHER");
        let recorded = db.numbers(
            "SELECT count(*) AS value FROM audit WHERE who = 'admin' AND what = 'set' AND campaign = 'victim'",
        );
        assert_eq!(recorded, [1]);
    });
}

#[test]
fn only_operators_replace_failed_messages_of_others() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let posted = served.api("admin", "POST", "/v1/messages", MESSAGE).json();
        scratch.run(["cancel", "--campaign", "default"]).assert_code(0);
        let failed = "SELECT count(*) AS value FROM sms_failed";
        assert_eq!(db.numbers(failed), [1]);
        let id = id(&posted);
        for name in ["smsq_id", " smsq_id ", "smsq_line"] {
            let message = json!({"phone": "+447400123456", "text": "New", "campaign": "mine", "params": {name: id}});
            let answer = served.post(&message.to_string()).assert_status(400);
            assert!(answer.body.contains("are reserved"), "{}", answer.body);
        }
        let list = format!("phone,content,smsq_id\n+447400123456,New,{id}\n");
        let fields = [("campaign", "mine")];
        let state = imported(&served, &upload(&served, &form(&fields, "a.csv", &list)));
        assert_eq!(state["state"], "failed", "{state}");
        assert!(state["detail"].to_string().contains("smsq_id"), "{state}");
        assert_eq!(db.numbers(failed), [1]);
        drop(served);
        scratch.checked_status(None);
    });
}

#[test]
fn token_that_sends_reads_only_what_it_posted() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let served = Served::start(&scratch);
        let own = id(&served.post(MESSAGE).json());
        let posted = served.api("admin", "POST", "/v1/messages", MESSAGE);
        let of_others = id(&posted.json());
        scratch.write("list.csv", "phone\n+447400123456\n");
        scratch.run(["import", "list.csv", "--text", "Hi", "--campaign", "l"]).assert_code(0);
        let list = "phone,n\n+447400123456,1\n";
        let body = form(&[("text", "Hi"), ("campaign", "up")], "a.csv", list);
        let uploads = ["send", "admin"].map(|role| {
            let answer =
                served.api_with(role, "POST", "/v1/imports", &FORM, &body).assert_status(202);
            let path = answer.header("location").expect("a location").to_owned();
            eventually("it is imported", || {
                served.api(role, "GET", &path, "").json()["state"] == "done"
            });
            path
        });
        let status = |role: &str, path: &str| served.api(role, "GET", path, "").status;
        for (role, expected) in [("send", [200, 404]), ("admin", [200, 200])] {
            let messages = [&own, &of_others].map(|id| format!("/v1/messages/{id}"));
            assert_eq!(messages.map(|path| status(role, &path)), expected, "{role}");
            let found = uploads.each_ref().map(|path| status(role, path));
            assert_eq!(found, expected, "{role}");
        }
        let count = |role: &str| {
            let path = "/v1/messages?phone=%2B447400123456";
            let found = served.api(role, "GET", path, "").json();
            let found = found["messages"].as_array().expect("messages").clone();
            assert!(
                found.iter().all(|sms| role == "read" || sms["phone"] == "+447400123456"),
                "{found:?}"
            );
            found.len()
        };
        // One posted and one uploaded; the second upload has the same phone.
        assert_eq!((count("send"), count("admin"), count("read")), (2, 4, 4));
    });
}

#[test]
fn campaign_that_cannot_be_made_does_not_delay_others() {
    let db = Database::in_a_file();
    let scratch = Scratch::at(&db.url);
    let served = Served::start(&scratch);
    let post = |campaign: &str, from: &str| {
        let message =
            json!({"phone": "+447400123456", "text": "a", "campaign": campaign, "from": from});
        served.post(&message.to_string()).status
    };
    assert_eq!(post("known", "A"), 202);
    let mut client = Client::open(db.kind, &db.url);
    client.run("BEGIN IMMEDIATE");
    let began = Instant::now();
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| post("new", "A"));
        // What was read about a campaign is read again after a second.
        while began.elapsed() < Duration::from_millis(1_500) {
            assert_eq!(post("known", "B"), 400, "it has another sender");
        }
        assert!(!blocked.is_finished(), "it waits for the lock");
        client.run("COMMIT");
        assert_eq!(blocked.join().expect("an answer"), 202);
    });
}

#[test]
fn worker_sends_what_was_posted() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.without_references("").at(&db.url).scratch();
        let served = Served::start(&scratch);
        let mut worker = scratch.start(["send", "--follow", "--quiet", "--format", "json"]);
        let posted = served.post(MESSAGE).json();
        let path = format!("/v1/messages/{}", id(&posted));
        let sent = worker
            .until("it is sent", || served.api("send", "GET", &path, "").json()["state"] == "sent");
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
        let changed =
            change("operate", r#"{"rate":"5/s","priority":3,"paused":true}"#).assert_status(200);
        let changed = changed.json();
        assert_eq!((&changed["rate"], &changed["state"]), (&json!("5/s"), &json!("paused")));
        assert_eq!(change("operate", r#"{"paused":false,"rate":"none"}"#).status, 200);
        for bad in [
            r#"{"rate":"fast"}"#,
            format!(r#"{{"rate":"{}"}}"#, vec!["1/s"; 300].join(",")).as_str(),
            r#"{"window":"at night"}"#,
        ] {
            assert_eq!(change("operate", bad).status, 400, "{bad}");
        }
        for (bad, named) in [
            (r#"{"x":1}"#, "unknown field `x`"),
            (r#"{"rate":5}"#, "invalid `rate`: invalid type: integer `5`"),
            ("{", "it is not JSON (line 1, column 1)"),
        ] {
            let answer = change("operate", bad);
            assert_eq!(answer.status, 400, "{bad}");
            assert!(answer.body.contains(named), "{}", answer.body);
        }
        assert_eq!(change("read", r#"{"priority":1}"#).status, 403);
        assert_eq!(served.api("operate", "PATCH", "/v1/campaigns/d", "{}").status, 404);
        let seen = served.api("read", "GET", "/v1/campaigns/c", "").json();
        assert_eq!((&seen["priority"], &seen["state"]), (&json!(3), &json!("active")), "{seen}");
        let csv = served.api("read", "GET", "/v1/campaigns/c/report.csv?list=figures", "");
        assert!(csv.body.starts_with("campaign,"), "{}", csv.body);
        assert_eq!(served.api("read", "GET", "/v1/campaigns/c/report.csv?list=x", "").status, 400);
    });
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

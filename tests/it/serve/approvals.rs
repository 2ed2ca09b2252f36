//! Approvals over the API: a batch is a list, and what a token can approve.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::json;

use super::{Answer, Served};
use crate::support::Scratch;
use crate::support::databases::{Database, with_every_database};
use crate::support::waiting::eventually;

const NDJSON: [(&str, &str); 1] = [("Content-Type", "application/x-ndjson")];

fn serve(db: &Database) -> (Scratch, Served) {
    let scratch = Scratch::at(&db.url);
    scratch.write_cellar("http://127.0.0.1:1");
    let text = scratch.read("smsq.toml");
    let rules = "[approval]\nfrom_messages = 10\n";
    scratch.write("smsq.toml", &format!("{text}\n{rules}"));
    let served = Served::start(&scratch);
    (scratch, served)
}

fn lines(campaign: &str, from: u32, count: u32) -> String {
    let line = |index: u32| {
        format!(
            "{{\"phone\":\"+4474001{index:05}\",\"text\":\"Hi\",\"campaign\":\"{campaign}\",\"dedupe_key\":\"{index}\"}}\n"
        )
    };
    (from..from + count).map(line).collect()
}

impl Served {
    fn batch(&self, campaign: &str, from: u32, count: u32) -> Answer {
        let body = lines(campaign, from, count);
        self.api_with("send", "POST", "/v1/messages/batch", &NDJSON, &body).assert_status(200)
    }

    fn campaign(&self, role: &str, name: &str) -> serde_json::Value {
        self.api(role, "GET", &format!("/v1/campaigns/{name}"), "").json()
    }

    fn patch(&self, role: &str, name: &str, change: &serde_json::Value) -> Answer {
        let path = format!("/v1/campaigns/{name}");
        self.api(role, "PATCH", &path, &change.to_string())
    }
}

/// The connection of a client that sends only the first lines of a batch.
fn begin_batch(served: &Served, count: u32) -> TcpStream {
    let mut client = TcpStream::connect(&served.address).expect("connects");
    let head = format!(
        "POST /v1/messages/batch HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: 9999999\r\n\r\n",
        served.address, served.tokens["send"]
    );
    client.write_all(head.as_bytes()).expect("writes");
    let lines = lines("spring", 0, count);
    client.write_all(lines.as_bytes()).expect("writes");
    client
}

#[test]
fn batch_waits_as_a_list_does() {
    with_every_database(|db| {
        let (_scratch, served) = serve(db);
        let small = served.batch("spring", 0, 9);
        assert_eq!(small.json()["waits_for_approval"], json!(null));
        assert_eq!(served.campaign("read", "spring")["state"], "active");
        let large = served.batch("spring", 9, 5).json();
        assert_eq!(large["accepted"], 5);
        let reason = "it has 14 messages, and `approval.from_messages` is 10";
        assert_eq!(large["waits_for_approval"]["spring"], reason);
        let waiting = served.campaign("admin", "spring");
        assert_eq!(waiting["state"], "unapproved");
        assert_eq!(waiting["approval"]["messages"], 5);
        assert_eq!(waiting["approval"]["wanted_by"], json!(["send"]));
        // What is posted alone waits, too, once the campaign is guarded.
        served.post(&lines("spring", 99, 1)).assert_status(202);
        assert_eq!(served.campaign("admin", "spring")["approval"]["messages"], 6);
        // Repeated, it adds nothing, and ends no approval.
        served.batch("spring", 9, 5);
        served
            .patch("admin", "spring", &json!({"approve": waiting["approval"]["fingerprint"]}))
            .assert_status(409);
        let approval = &served.campaign("admin", "spring")["approval"];
        assert_eq!(approval["messages"], 6);
        let done = served
            .patch("admin", "spring", &json!({"approve": approval["fingerprint"]}))
            .assert_status(200);
        assert_eq!(done.json()["state"], "active");
        served.stop();
    });
}

#[test]
fn batch_of_a_client_that_disconnects_waits_where_it_is_large() {
    with_every_database(|db| {
        let (_scratch, served) = serve(db);
        let client = begin_batch(&served, 1_200);
        let stored = || db.number("SELECT count(*) AS value FROM sms") == 1_000;
        eventually("a part is stored", stored);
        assert_eq!(served.campaign("read", "spring")["state"], "unapproved");
        drop(client);
        let reason = || served.campaign("read", "spring")["approval"]["reason"].to_string();
        eventually("it is decided", || reason().contains("`approval.from_messages` is 10"));
        served.stop();
    });
}

#[test]
fn batch_of_a_killed_server_is_continued_by_its_repetition() {
    const LINES: u32 = 2_500;
    with_every_database(|db| {
        let (scratch, served) = serve(db);
        let text = scratch.read("smsq.toml");
        let text = text.replace("from_messages = 10\n", "from_messages = 3000\n");
        scratch.write("smsq.toml", &text);
        let tokens = served.tokens.clone();
        served.stop();
        // The rules are also in the database.
        let replace = ["approve", "--replace-rules", "--yes"];
        scratch.run(replace).assert_code(0);
        let served = Served::again(&scratch, tokens.clone(), "127.0.0.1:0");
        let client = begin_batch(&served, LINES - 200);
        let count = "SELECT count(*) AS value FROM sms";
        eventually("2,000 lines are stored", || db.number(count) == 2_000);
        served.process.kill();
        drop(client);
        let served = Served::again(&scratch, tokens, "127.0.0.1:0");
        let repeated = served.batch("spring", 0, LINES).json();
        assert_eq!(repeated["accepted"], 500);
        assert_eq!(repeated["duplicates"], 2_000);
        assert_eq!(repeated["waits_for_approval"], json!(null));
        let campaign = served.campaign("admin", "spring");
        assert_eq!(campaign["state"], "active", "{campaign}");
        assert_eq!(db.number("SELECT count(*) AS value FROM approval WHERE state = 1"), 0);
        // With another 500, all of it is too large.
        let more = served.batch("spring", LINES, 500).json();
        assert!(more["waits_for_approval"]["spring"].is_string(), "{more}");
        served.stop();
    });
}

#[test]
fn contradicting_decisions_change_nothing() {
    with_every_database(|db| {
        let (_scratch, served) = serve(db);
        served.batch("spring", 0, 12);
        let fingerprint = served.campaign("admin", "spring")["approval"]["fingerprint"].clone();
        for more in [json!({"reject": "no"}), json!({"paused": true}), json!({"rate": "9/s"})] {
            let mut change = json!({ "approve": fingerprint });
            for (name, value) in more.as_object().expect("an object") {
                change[name] = value.clone();
            }
            served.patch("admin", "spring", &change).assert_status(400);
            assert_eq!(served.campaign("admin", "spring")["state"], "unapproved");
        }
        served.patch("admin", "spring", &json!({"reject": "the link is wrong"})).assert_status(200);
        let reason = &served.campaign("admin", "spring")["approval"]["reason"];
        assert_eq!(reason, "not approved by admin: the link is wrong");
        served.patch("send", "spring", &json!({ "approve": fingerprint })).assert_status(403);
        served.stop();
    });
}

#[test]
fn paused_campaign_shows_what_waits() {
    with_every_database(|db| {
        let (_scratch, served) = serve(db);
        served.batch("spring", 0, 12);
        served.patch("operate", "spring", &json!({"paused": true}));
        let paused = served.campaign("operate", "spring");
        assert_eq!(paused["state"], "paused");
        assert_eq!(paused["approval"]["messages"], 12);
        let cookie = served.log_in("operate");
        let question = served.page(&cookie, "/campaigns/spring/resume").body;
        assert!(question.contains("wait for approval"), "{question}");
        served.until_shown(&cookie, "/campaigns/spring", "action-approve");
        let change = json!({ "approve": paused["approval"]["fingerprint"] });
        let approved = served.patch("operate", "spring", &change).assert_status(200);
        assert_eq!(approved.json()["approval"], json!(null));
        assert_eq!(approved.json()["state"], "paused");
        served.stop();
    });
}

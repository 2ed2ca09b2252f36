//! Changes of a campaign in every state, through every door: the command, the page and the API.

use std::fmt::Write as _;

use super::Served;
use crate::support::Scratch;
use crate::support::databases::{Database, with_every_database};
use crate::support::html::attribute;

/// The states, as column `campaign.state` has them.
const STATES: [(&str, i32); 4] = [("active", 0), ("paused", 1), ("stopped", 2), ("cancelled", 3)];

/// A change: the command after `--campaign NAME`, the action and form of the page, the body of the API.
struct Change {
    name: &'static str,
    command: Option<&'static [&'static str]>,
    page: Option<(&'static str, &'static str)>,
    api: Option<&'static str>,
    /// The state that it leads to; `None`: the state stays.
    leads_to: Option<i32>,
    refused_when_cancelled: bool,
}

const CHANGES: [Change; 9] = [
    Change {
        name: "pause",
        command: Some(&["pause"]),
        page: Some(("pause", "")),
        api: Some(r#"{"paused":true}"#),
        leads_to: Some(1),
        refused_when_cancelled: true,
    },
    Change {
        name: "resume",
        command: Some(&["resume"]),
        page: Some(("resume", "")),
        api: Some(r#"{"paused":false}"#),
        leads_to: Some(0),
        refused_when_cancelled: false,
    },
    Change {
        name: "cancel",
        command: Some(&["cancel"]),
        page: Some(("cancel", "name=NAME")),
        api: None,
        leads_to: Some(3),
        refused_when_cancelled: false,
    },
    Change {
        name: "rate",
        command: Some(&["set", "--rate", "5/s"]),
        page: Some(("rate", "rate=5%2Fs")),
        api: Some(r#"{"rate":"5/s"}"#),
        leads_to: None,
        refused_when_cancelled: true,
    },
    Change {
        name: "priority",
        command: Some(&["set", "--priority", "3"]),
        page: None,
        api: Some(r#"{"priority":3}"#),
        leads_to: None,
        refused_when_cancelled: true,
    },
    Change {
        name: "window",
        command: Some(&["set", "--window", "00:00-23:59", "--timezone", "Europe/Berlin"]),
        page: None,
        api: Some(r#"{"window":"00:00-23:59 mon-sun Europe/Berlin"}"#),
        leads_to: None,
        refused_when_cancelled: true,
    },
    Change {
        name: "retry",
        command: Some(&["retry"]),
        page: Some(("retry", "class=&code=")),
        api: None,
        leads_to: None,
        refused_when_cancelled: true,
    },
    Change {
        name: "resend",
        command: Some(&["retry", "--unknown"]),
        page: Some(("retry-unknown", "")),
        api: None,
        leads_to: None,
        refused_when_cancelled: true,
    },
    Change {
        name: "settle",
        command: Some(&["settle", "--unknown", "sent"]),
        page: Some(("settle-sent", "")),
        api: None,
        leads_to: None,
        refused_when_cancelled: false,
    },
];

fn state_of(db: &Database, campaign: &str) -> i64 {
    db.number(&format!("SELECT state AS value FROM campaign WHERE name = '{campaign}'"))
}

/// What a door answers: whether it accepts, and its words.
fn ask(
    scratch: &Scratch,
    served: &Served,
    cookie: &str,
    change: &Change,
    door: &str,
    campaign: &str,
) -> Option<(bool, String)> {
    match door {
        "command" => {
            let command = change.command?;
            let line = [command, &["--campaign", campaign]].concat();
            let ran = scratch.run(line);
            Some((ran.code() == Some(0), ran.to_string()))
        }
        "page" => {
            let (action, form) = change.page?;
            let path = format!("/campaigns/{campaign}/{action}");
            // The form of a tab that was opened when the campaign was active.
            let named = "named=9-9999999999999";
            let form = format!("{}&{named}", form.replace("NAME", campaign));
            let answer = served.submit(cookie, &path, &form);
            assert!([200, 409].contains(&answer.status), "{}", answer.body);
            Some((answer.status == 200, answer.body))
        }
        _ => {
            let path = format!("/v1/campaigns/{campaign}");
            let answer = served.api("operate", "PATCH", &path, change.api?);
            assert!([200, 409].contains(&answer.status), "{}", answer.body);
            Some((answer.status == 200, answer.body))
        }
    }
}

#[test]
fn every_door_accepts_and_refuses_the_same_changes() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        let mut cells = Vec::new();
        for change in &CHANGES {
            for (state, code) in STATES {
                for door in ["command", "page", "api"] {
                    cells.push((
                        change,
                        state,
                        code,
                        door,
                        format!("{}-{state}-{door}", change.name),
                    ));
                }
            }
        }
        let line = |campaign: &String| {
            format!("{{\"phone\":\"+447400123456\",\"text\":\"a\",\"campaign\":\"{campaign}\"}}\n")
        };
        let lines: String = cells.iter().map(|cell| line(&cell.4)).collect();
        let kind = [("Content-Type", "application/x-ndjson")];
        let posted = served.api_with("send", "POST", "/v1/messages/batch", &kind, &lines);
        assert_eq!(posted.json()["accepted"], cells.len(), "{}", posted.body);
        for (state, code) in STATES {
            db.run(&format!("UPDATE campaign SET state = {code} WHERE name LIKE '%-{state}-%'"));
        }
        for (change, state, code, door, campaign) in &cells {
            let Some((is_accepted, words)) =
                ask(&scratch, &served, &cookie, change, door, campaign)
            else {
                continue;
            };
            let is_refused = change.refused_when_cancelled && *state == "cancelled";
            assert_eq!(is_accepted, !is_refused, "{campaign}: {words}");
            let expected = match change.leads_to {
                Some(target) if is_accepted => target,
                _ => *code,
            };
            assert_eq!(state_of(db, campaign), i64::from(expected), "{campaign}: {words}");
            if is_refused {
                assert!(words.contains("is cancelled: it"), "{campaign}: {words}");
                assert!(words.contains("its cancelled messages stay cancelled"), "{words}");
            }
        }
        // Each change of a state or a setting that was made is in the audit log once, and nothing else is.
        let changed = |what: &str, where_: &str| {
            db.number(&format!(
                "SELECT count(*) AS value FROM audit WHERE what = '{what}' AND {where_}"
            ))
        };
        assert_eq!(changed("pause", "1 = 1"), 2 * 3, "active and stopped, three doors");
        assert_eq!(changed("resume", "1 = 1"), 3 * 3);
        assert_eq!(changed("cancel", "1 = 1"), 3 * 2);
        assert_eq!(changed("set", "1 = 1"), 3 * (3 + 2 + 2));
        assert_eq!(changed("pause", "campaign LIKE '%-cancelled-%'"), 0);
        // A cancelled campaign that is resumed has nothing to send.
        let queued = "SELECT count(*) AS value FROM sms WHERE state = 0 AND campaign_id IN \
             (SELECT id FROM campaign WHERE name LIKE 'cancel-active-%')";
        assert_eq!(db.number(queued), 1, "only the one that no door of the API cancelled");
    });
}

#[test]
fn resumed_campaign_does_not_send_its_cancelled_messages() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        scratch.import("phone\n+447400123456\n+447400123457\n");
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        served.page(&cookie, "/campaigns/c/pause").assert_status(200);
        scratch.run(["cancel", "--campaign", "c"]).assert_code(0);
        served.submit(&cookie, "/campaigns/c/pause", "").assert_status(409);
        assert_eq!(scratch.checked_status(Some("c"))["state"], "cancelled");
        let question = served.page(&cookie, "/campaigns/c/resume").body;
        assert!(question.contains("Its 2 messages stay cancelled"), "{question}");
        let answer = served.submit(&cookie, "/campaigns/c/resume", "");
        assert!(answer.body.contains("cancelled messages stay cancelled"), "{}", answer.body);
        let status = scratch.checked_status(Some("c"));
        assert_eq!((&status["queued"], &status["cancelled"]), (&0.into(), &2.into()), "{status}");
    });
}

#[test]
fn confirmation_is_asked_again_when_more_messages_match() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let mut list = "phone\n".to_owned();
        for index in 0..7 {
            writeln!(list, "+44740012345{index}").expect("a string");
        }
        scratch.import(&list);
        let unknown = |ids: &str, at: i64| {
            db.run(&format!(
                "UPDATE sms SET state = 2, in_doubt = TRUE, attempts = 1, claimed_at = {at}, unknown_at = {at} \
                 WHERE id IN ({ids})"
            ));
        };
        let first = db.number("SELECT min(id) AS value FROM sms");
        unknown(&format!("{first}, {}", first + 1), 1_000);
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        let named = |action: &str| {
            let page = served.page(&cookie, &format!("/campaigns/c/{action}")).body;
            let named = attribute(&page, "[name=named]", "value").expect("a hidden field");
            (format!("named={named}"), page)
        };
        for action in ["retry-unknown", "settle-sent", "settle-failed"] {
            let (form, page) = named(action);
            assert!(page.contains("2 messages"), "{page}");
            // One more, and one in place of another.
            for (more, at) in [(first + 2, 2_000), (first + 3, 3_000)] {
                unknown(&more.to_string(), at);
                let answer = served
                    .submit(&cookie, &format!("/campaigns/c/{action}"), &form)
                    .assert_status(409);
                assert!(answer.body.contains("than the 2 messages"), "{}", answer.body);
                db.run(&format!("UPDATE sms SET state = 0, in_doubt = FALSE WHERE id = {more}"));
                if at == 2_000 {
                    db.run(&format!("UPDATE sms SET state = 0 WHERE id = {first}"));
                }
            }
            unknown(&format!("{first}, {}", first + 1), 1_000);
            let left = db.number("SELECT count(*) AS value FROM sms WHERE state = 2");
            assert_eq!(left, 2, "nothing was changed");
            let answer = served.submit(&cookie, &format!("/campaigns/c/{action}"), "");
            assert_eq!(answer.status, 409, "without a question: {}", answer.body);
        }
        let (form, _) = named("retry-unknown");
        let answer = served.submit(&cookie, "/campaigns/c/retry-unknown", &form);
        assert!(answer.body.contains("Queued 2 messages"), "{}", answer.body);
    });
}

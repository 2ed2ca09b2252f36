//! The pages, as a browser without JavaScript gets them.

use serde_json::Value;
use smsq_sandbox::SandboxConfig;

use super::Served;
use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::html::{attribute, element, elements, has};
use crate::support::practice::Practice;
use crate::support::scripted::Scripted;
use crate::support::waiting::eventually;

/// Ten messages: eight are sent, two fail.
fn sent_campaign(scratch: Scratch) -> (Practice, Scratch) {
    let gateway = Practice::start(SandboxConfig::default());
    gateway.without_references("").configure(&scratch);
    let sent = (0..8).map(|index| format!("+44740012345{index}\n"));
    let list = format!("phone\n{}+15005551000\n+15005551001\n", sent.collect::<String>());
    scratch.import(&list);
    scratch.run(["send", "--quiet"]).assert_code(1);
    (gateway, scratch)
}

fn state(scratch: &Scratch) -> Value {
    scratch.checked_status(Some("c"))
}

#[test]
fn page_of_a_campaign_is_its_report() {
    with_every_database(|db| {
        let (_gateway, scratch) = sent_campaign(Scratch::at(&db.url));
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        let overview = served.until_shown(&cookie, "/", "data-count=\"sent\">8<");
        assert!(overview.contains("<a href=\"/campaigns/c\" title=\"c\">c</a>"), "{overview}");
        assert!(overview.contains("The last hour"), "{overview}");
        let page = served.until_shown(&cookie, "/campaigns/c", "Who was not reached");
        for text in ["Why 2 did not arrive", "+15005551000", "80.0 %", "done"] {
            assert!(page.contains(text), "{text}: {page}");
        }
        let report = served.page(&cookie, "/campaigns/c/report.html");
        assert!(report.body.contains("<!DOCTYPE html>"), "{}", report.body);
        let csv = served.page(&cookie, "/campaigns/c/failed.csv").body;
        let same = scratch.run(["report", "--campaign", "c", "--failed", "--format", "csv"]);
        assert_eq!(csv.lines().count(), same.stdout().lines().count(), "{csv}");
        assert_eq!(served.page(&cookie, "/campaigns/d").status, 404);
    });
}

#[test]
fn search_shows_every_attempt() {
    with_every_database(|db| {
        let reason = r#"{"error":{"code":"bad","message":"<b>no</b> line to +447400123456"}}"#;
        let gateway = Scripted::in_order(&[
            ("429 Too Many Requests", "{}"),
            ("400 Bad Request", reason),
            ("201 Created", r#"{"id":"m-1"}"#),
        ]);
        let scratch = Scratch::at(&db.url);
        scratch.write_cellar(&gateway.url());
        scratch.import("phone\n+447400123456\n");
        scratch.run(["send", "--quiet"]).assert_code(1);
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        let search = "/search?phone=%2B447400123456";
        let shown = |page: &str, expected: &[&[&str]]| {
            let rows = elements(page, "tr.attempt");
            assert_eq!(rows.len(), expected.len(), "{page}");
            for (row, texts) in rows.iter().zip(expected) {
                for text in *texts {
                    assert!(row.contains(text), "{text}: {row}");
                }
            }
            // Neither a phone nor markup of the gateway is in a reason.
            assert!(!rows.concat().contains("447400123456"), "{page}");
            assert!(!page.contains("<b>no</b>"), "{page}");
        };
        let throttled: &[&str] = &["attempt 1", ">throttled<", ">throttle", "429", "cellar"];
        let failed: &[&str] = &["attempt 2", ">failed<", "no&lt;", "line to", "cellar"];
        let sent: &[&str] = &["attempt 3", ">sent<", "cellar"];
        shown(&served.page(&cookie, search).body, &[throttled, failed]);
        let retried = served.confirm(&cookie, "/campaigns/c/retry", "class=&code=");
        assert!(retried.body.contains("Queued 1 message"), "{}", retried.body);
        shown(&served.page(&cookie, search).body, &[throttled, failed]);
        scratch.run(["send", "--quiet"]).assert_code(0);
        let all = [throttled, failed, sent];
        shown(&served.page(&cookie, search).body, &all);
        shown(&served.page(&served.log_in("read"), search).body, &all);
        scratch.run(["purge", "--phone", "+447400123456", "--yes"]).assert_code(0);
        shown(&served.page(&cookie, search).body, &[]);
        assert_eq!(db.number("SELECT count(*) AS value FROM attempt"), 0);
    });
}

#[test]
fn changes_are_marked_on_the_timeline() {
    with_every_database(|db| {
        let (_gateway, scratch) = sent_campaign(Scratch::at(&db.url));
        let served = Served::start(&scratch);
        served.api("admin", "PATCH", "/v1/campaigns/c", r#"{"paused":true}"#).assert_status(200);
        let cookie = served.log_in("read");
        for path in ["/", "/campaigns/c"] {
            let page = served.until_shown(&cookie, path, "class=\"events\"");
            assert!(page.contains("<line class=\"event\""), "{page}");
            assert!(page.contains("<b>admin</b> paused campaign <code>c</code><"), "{page}");
        }
    });
}

#[test]
fn live_page_is_sent_again_only_if_it_changed() {
    let scratch = Scratch::new();
    scratch.import("phone\n+447400123456\n");
    let (served, cookie) = Served::logged_in(&scratch, "read");
    served.until_shown(&cookie, "/", "data-count=\"sent\">0<");
    eventually("an unchanged page is not sent", || {
        let page = served.page(&cookie, "/").body;
        let last = attribute(&page, "#live", "data-revision").expect("a revision");
        served.page(&cookie, &format!("/?live={last}")).status == 204
    });
    assert_eq!(served.page(&cookie, "/?live=0").status, 200);
    assert_eq!(served.page(&cookie, "/?live=x").status, 400);
}

#[test]
fn operator_controls_a_campaign() {
    with_every_database(|db| {
        let (_gateway, scratch) = sent_campaign(Scratch::at(&db.url));
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        let ask = |action: &str| served.page(&cookie, &format!("/campaigns/c/{action}"));
        let act = |action: &str, form: &str| {
            let answer = served.confirm(&cookie, &format!("/campaigns/c/{action}"), form);
            (answer.status, answer.body)
        };

        assert!(ask("pause").body.contains("Pause <code>c</code>?"));
        let (status, page) = act("pause", "");
        assert!(status == 200 && page.contains("Paused <code>c</code>."), "{page}");
        assert_eq!(state(&scratch)["state_reason"], "paused by operate");
        assert_eq!(act("resume", "").0, 200);
        let (status, page) = act("rate", "rate=5%2Fs");
        assert!(status == 200 && page.contains("at most 5/s"), "{page}");
        let (status, page) = act("rate", "rate=fast");
        assert!(status == 400 && page.contains("invalid rate <code>fast</code>"), "{page}");

        assert!(ask("retry").body.contains("2 messages"));
        let (status, page) = act("retry", "class=nonsense");
        assert!(status == 400 && page.contains("unknown class <code>nonsense</code>"), "{page}");
        let (_, page) = act("retry", "class=&code=none");
        assert!(page.contains("Queued 0 messages"), "{page}");
        let (_, page) = act("retry", "class=&code=");
        assert!(page.contains("Queued 2 messages"), "{page}");
        assert_eq!(state(&scratch)["queued"], 2);

        let (status, page) = act("cancel", "name=other");
        assert!(status == 400 && page.contains("Enter <code>c</code> to confirm that"), "{page}");
        assert_eq!(state(&scratch)["queued"], 2);
        let (status, page) = act("cancel", "name=c");
        assert!(status == 200 && page.contains("2 messages will not be sent"), "{page}");
        assert_eq!(state(&scratch)["cancelled"], 2);

        let audit = served.page(&cookie, "/audit").body;
        for action in ["pause", "resume", "set", "retry", "cancel"] {
            assert!(audit.contains(&format!("<td>{action}</td>")), "{action}: {audit}");
        }
        assert_eq!(ask("explode").status, 404);
    });
}

#[test]
fn changes_by_commands_are_listed_once() {
    with_every_database(|db| {
        let (_gateway, scratch) = sent_campaign(Scratch::at(&db.url));
        let lines: [&[&str]; 11] = [
            &["pause", "--campaign", "c"],
            &["pause", "--campaign", "c"],
            &["set", "--campaign", "c", "--rate", "5/s"],
            &["resume", "--campaign", "c"],
            &["resume", "--campaign", "c"],
            &["retry", "--campaign", "c"],
            &["suppress", "add", "+447400123451"],
            &["suppress", "add", "+447400123451"],
            &["suppress", "remove", "+447400123451"],
            &["cancel", "--campaign", "c"],
            &["purge", "--older-than", "90d", "--yes"],
        ];
        for line in lines {
            scratch.run(line.iter().copied()).assert_code(0);
        }
        let verbs = db.words("SELECT what AS value FROM audit ORDER BY id");
        let verbs: Vec<String> = verbs.into_iter().flatten().collect();
        assert_eq!(verbs.join(" "), "pause set resume retry suppress unsuppress cancel");
        let served = Served::start(&scratch);
        let page = served.page(&served.log_in("read"), "/audit").body;
        assert!(page.contains("uid ") && page.contains("at most 5/s"), "{page}");
        assert!(!page.contains("447400123451"), "{page}");
    });
}

#[test]
fn unknown_messages_are_settled_after_a_warning() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("timeout = \"300ms\"").scratch();
    // The gateway accepts these without a response.
    scratch.import("phone\n+15005555000\n+15005555001\n");
    scratch.run(["send", "--quiet"]).assert_code(1);
    assert_eq!(state(&scratch)["unknown"], 2);
    let (served, cookie) = Served::logged_in(&scratch, "operate");
    let asked = served.page(&cookie, "/campaigns/c/retry-unknown").body;
    assert!(asked.contains("may get the text twice"), "{asked}");
    let settled = served.confirm(&cookie, "/campaigns/c/settle-sent", "").body;
    assert!(settled.contains("Marked 2 messages"), "{settled}");
    assert_eq!(state(&scratch)["sent"], 2);
}

#[test]
fn phone_is_searched_and_suppressed() {
    with_every_database(|db| {
        let (_gateway, scratch) = sent_campaign(Scratch::at(&db.url));
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        let found = served.page(&cookie, "/search?phone=%2B447400123451").body;
        assert!(found.contains(">sent<") && found.contains("cellar"), "{found}");
        let found = served.page(&cookie, "/search?phone=%2B15005551000").body;
        assert!(found.contains(">failed<"), "{found}");
        let found = served.page(&cookie, "/search?phone=%2B447400999999").body;
        assert!(found.contains("No message to this number"), "{found}");
        assert_eq!(served.page(&cookie, "/search?phone=12").status, 400);

        let added = served.submit(&cookie, "/suppression", "phone=%2B44+7400+123451&reason=asked");
        assert!(added.body.contains("Added +447400123451"), "{}", added.body);
        let nul = "phone=%2B447400123452&reason=a%00b";
        let added = served.submit(&cookie, "/suppression", nul);
        assert!(added.body.contains("Added +447400123452"), "{}", added.body);
        let again = served.submit(&cookie, "/suppression", "phone=%2B447400123451");
        assert!(again.body.contains("on the list already"), "{}", again.body);
        assert_eq!(served.submit(&cookie, "/suppression", "phone=12").status, 400);
        let found = served.page(&cookie, "/search?phone=%2B447400123451").body;
        assert!(found.contains("on the suppression list"), "{found}");
        let listed = scratch.run(["suppress", "list"]);
        assert!(listed.stdout().contains("+447400123451"), "{listed}");
        let audit = served.page(&cookie, "/audit").body;
        assert!(audit.contains("+4474****3451") && !audit.contains("447400123451"), "{audit}");
    });
}

fn campaign_rows(page: &str) -> usize {
    elements(page, "tr[id^=campaign-]").len()
}

#[test]
fn overview_lists_many_campaigns_page_by_page() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        scratch.import("phone\n+447400123456\n");
        let names: Vec<String> = (0..320).map(|index| format!("sale {index:03}")).collect();
        let rows = names.iter().enumerate();
        let rows = rows.map(|(index, name)| {
            // Every second one is paused; the others are done.
            format!("('{name}', {}, 0)", index % 2)
        });
        let rows = rows.collect::<Vec<_>>().join(", ");
        db.run(&format!("INSERT INTO campaign (name, state, created_at) VALUES {rows}"));
        let (served, cookie) = Served::logged_in(&scratch, "read");
        let page = served.until_shown(&cookie, "/", "1 to 50 of 161 campaigns");
        assert_eq!(campaign_rows(&page), 50 + 5, "{page}");
        // What sends messages comes before what is paused.
        let first = element(&page, "tr[id^=campaign-]");
        assert!(first.contains("title=\"c\""), "{first}");
        assert!(element(&page, "#over").contains("sale 318"), "{page}");
        assert!(page.contains("All 160 done and cancelled"), "{page}");
        let last = served.page(&cookie, "/?page=4").body;
        assert!(last.contains("151 to 161 of 161"), "{last}");
        let beyond = served.page(&cookie, "/?page=99").body;
        assert!(beyond.contains("151 to 161 of 161"), "{beyond}");
        let over = served.page(&cookie, "/?show=over&page=2").body;
        assert!(over.contains("51 to 100 of 160"), "{over}");
        let found = served.page(&cookie, "/?q=SALE+31").body;
        assert!(found.contains("10 campaigns"), "{found}");
        assert_eq!(campaign_rows(&found), 10, "{found}");
        let none = served.page(&cookie, "/?q=%3Cb%3E").body;
        assert!(none.contains("No campaign has this") && !none.contains("<b>"), "{none}");
        assert_eq!(served.page(&cookie, "/?page=x").status, 400);
    });
}

#[test]
fn missing_worker_is_the_first_thing_on_the_pages() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        scratch.import("phone\n+447400123456\n");
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        for path in ["/", "/campaigns/c"] {
            let page = served.until_shown(&cookie, path, "No worker is running");
            let alerts = element(&page, "header + #alerts");
            assert!(alerts.contains("Queued: 1 message."), "{page}");
            assert!(element(&page, "header").contains("0/s now"), "{page}");
        }
        served.confirm(&cookie, "/campaigns/c/pause", "").assert_status(200);
        // It is not missing any more, and a pause by a person is not a problem.
        for path in ["/", "/campaigns/c"] {
            let page = served.page(&cookie, path).body;
            assert!(!page.contains("id=\"alerts\""), "{page}");
        }
    });
}

#[test]
fn unavailable_provider_is_shown_with_its_beginning() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.without_references("").at(&db.url).scratch();
        // A rejection is not an error of the provider.
        scratch.import("phone\n+447400123456\n+15005551000\n");
        let worker = scratch.start(["send", "--follow", "--quiet"]);
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        let page = served.until_shown(&cookie, "/", "id=\"providers\"");
        let errors = element(&page, "#providers");
        assert!(errors.contains("<td class=\"text\">–</td>"), "{errors}");
        served.until_shown(&cookie, "/campaigns/c", "Who was not reached");
        drop(gateway);
        let more = scratch.write("more.csv", "phone\n+447400123457\n+447400123458\n");
        let line = ["import", "more.csv", "--campaign", "c", "--text", "Hi"];
        assert_eq!(more.run(line).code(), Some(0));
        let unavailable = "Provider <code>cellar</code> is unavailable: ";
        for path in ["/", "/campaigns/c"] {
            let page = served.until_shown(&cookie, path, unavailable);
            let alert = element(&page, "header + #alerts li");
            assert!(alert.contains(unavailable), "{alert}");
            assert!(alert.contains("since "), "{alert}");
        }
        drop(worker);
    });
}

#[test]
fn change_is_shown_at_once() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        scratch.import("phone\n+447400123456\n+447400123457\n");
        let (served, cookie) = Served::logged_in(&scratch, "operate");
        served.until_shown(&cookie, "/campaigns/c", "<span class=\"pill active\">active");
        for (action, form, state) in
            [("pause", "", "paused"), ("resume", "", "active"), ("cancel", "name=c", "cancelled")]
        {
            let answer =
                served.confirm(&cookie, &format!("/campaigns/c/{action}"), form).assert_status(200);
            assert!(answer.body.contains("Back to the campaign"), "{}", answer.body);
            let shown = format!("<span class=\"pill {state}\">{state}</span>");
            for path in ["/", "/campaigns/c"] {
                let page = served.page(&cookie, path).body;
                assert!(page.contains(&shown), "{path} after {action}: {page}");
            }
        }
        let page = served.page(&cookie, "/").body;
        assert!(page.contains("data-count=\"cancelled\">2<"), "{page}");
    });
}

#[test]
fn page_of_a_campaign_offers_what_is_possible() {
    let (_gateway, scratch) = sent_campaign(Scratch::new());
    let (served, cookie) = Served::logged_in(&scratch, "operate");
    let page = served.until_shown(&cookie, "/campaigns/c", "Who was not reached");
    let head = element(&page, "header");
    assert!(has(&head, "#action-retry"), "{head}");
    assert!(!has(&head, "#action-cancel"), "{head}");
    assert!(!head.contains("/s now"), "{head}");
    // What changes nothing now is folded.
    for action in ["#action-pause", "#action-rate"] {
        assert!(has(&head, &format!("details {action}")), "{head}");
    }
    let reader = served.page(&served.log_in("read"), "/campaigns/c").body;
    assert!(!has(&reader, "[id^=action-]"), "{reader}");
}

#[test]
fn search_and_suppression_use_the_default_region() {
    let (_gateway, scratch) = sent_campaign(Scratch::new());
    let config = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("default_region = \"GB\"\n{config}"));
    let (served, cookie) = Served::logged_in(&scratch, "operate");
    let found = served.page(&cookie, "/search?phone=07400+123451").body;
    let row = element(&found, "tbody tr");
    for text in ["href=\"/campaigns/c\"", ">sent<", "class=\"text\" dir=\"auto\">"] {
        assert!(row.contains(text), "{text}: {row}");
    }
    // As on the other pages, and not as in the API.
    assert!(!row.contains("Z</td>"), "{row}");
    let reader = served.page(&served.log_in("read"), "/search?phone=07400+123451").body;
    assert!(!reader.contains("dir=\"auto\""), "{reader}");
    let added = served.submit(&cookie, "/suppression", "phone=07400+123451&reason=asked");
    assert!(added.body.contains("Added +447400123451"), "{}", added.body);
    let wrong =
        served.submit(&cookie, "/suppression", "phone=33612345678&reason=asked").assert_status(400);
    assert!(!wrong.body.contains("--"), "{}", wrong.body);
    assert!(wrong.body.contains("value=\"33612345678\""), "{}", wrong.body);
}

#[test]
fn unknown_address_is_a_page_for_browsers() {
    let scratch = Scratch::new();
    let (served, cookie) = Served::logged_in(&scratch, "read");
    let get = |path: &str, cookie: &str, accept: &str| {
        let headers = [("Cookie", cookie), ("Accept", accept)];
        super::request(&served.address, "GET", path, &headers, b"").expect("an answer")
    };
    for (path, status) in [("/nowhere", 404), ("/?page=x", 400), ("/logout", 405)] {
        for cookie in [cookie.as_str(), ""] {
            let page = get(path, cookie, "text/html,*/*;q=0.8");
            // Without a session, what needs one shows the log-in.
            let status = if path == "/?page=x" && cookie.is_empty() { 401 } else { status };
            assert_eq!(page.status, status, "{path}: {}", page.body);
            assert!(page.body.contains("<!DOCTYPE html>"), "{path}: {}", page.body);
        }
        let problem = get(path, &cookie, "*/*");
        assert_eq!(problem.json()["status"], status, "{path}");
    }
}

#[test]
fn large_responses_are_compressed_for_clients_that_accept_it() {
    let (_gateway, scratch) = sent_campaign(Scratch::new());
    let (served, cookie) = Served::logged_in(&scratch, "operate");
    served.until_shown(&cookie, "/campaigns/c", "Who was not reached");
    let get = |path: &str| {
        let headers = [("Cookie", cookie.as_str()), ("Accept-Encoding", "gzip")];
        super::request(&served.address, "GET", path, &headers, b"").expect("an answer")
    };
    for path in ["/campaigns/c", "/style.css", "/openapi.json", "/campaigns/c/sent.csv"] {
        let answer = get(path);
        assert_eq!(answer.header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!(answer.header("vary"), Some("accept-encoding"), "{path}");
        let plain = served.page(&cookie, path);
        assert_eq!(plain.header("content-encoding"), None, "{path}");
    }
    for path in ["/healthz", "/robots.txt"] {
        let answer = get(path);
        assert_eq!(answer.header("content-encoding"), None, "{path}");
    }
}

#[test]
fn health_and_metrics_are_for_this_machine() {
    with_every_database(|db| {
        let (_gateway, scratch) = sent_campaign(Scratch::at(&db.url));
        let served = Served::start(&scratch);
        for path in ["/healthz", "/readyz"] {
            let answer = served.api("", "GET", path, "");
            assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"), "{path}");
        }
        let metrics = served.api("", "GET", "/metrics", "").body;
        let sent = r#"smsq_messages{campaign="c",provider="cellar",state="sent"} 8"#;
        assert!(metrics.contains(sent), "{metrics}");
        assert!(metrics.contains("smsq_database_up 1"), "{metrics}");
    });
}

#[test]
fn server_starts_on_an_empty_database() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let (served, cookie) = Served::logged_in(&scratch, "read");
        served.until_shown(&cookie, "/", "No campaigns yet");
        served.stop().assert_code(0);
    });
}

//! The server on a practice database: every page and every answer with counts says so.

use std::collections::{BTreeSet, VecDeque};

use super::drafts::{ready, save, upload};
use super::{Answer, Served, configure};
use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::html::{attributes, has};
use crate::support::practice::list;
use crate::support::waiting::eventually;

const BAND: &str = "p.practice";

fn is_page(answer: &Answer) -> bool {
    answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html"))
}

/// A practice database with a campaign, whose tokens are configured, and the server on it.
fn practising(scratch: &Scratch, database: &str) -> Served {
    scratch.write("smsq.toml", "").write("list.csv", &format!("{}12345\n", list(3)));
    let line = ["run", "list.csv", "--text", "Hi", "--campaign", "c"];
    scratch.run(line.into_iter().chain(["--practice", "--database", database])).assert_code(0);
    let tokens = configure(scratch, "");
    let line = ["--listen", "127.0.0.1:0", "--send", "--practice"];
    Served::running(scratch, tokens, &[&line[..], &["--database", database]].concat())
}

/// Follows every link of every page, as who is logged in; returns the addresses of the pages.
fn walk(served: &Served, cookie: &str) -> BTreeSet<String> {
    let mut pages = BTreeSet::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut left: VecDeque<String> =
        ["/", "/login", "/nothing", "/campaigns/nothing"].map(str::to_owned).into();
    while let Some(path) = left.pop_front() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let headers = [("Cookie", cookie), ("Accept", "text/html")];
        let answer = super::request(&served.address, "GET", &path, &headers, b"");
        let answer = answer.expect("an answer");
        if !is_page(&answer) {
            continue;
        }
        assert!(has(&answer.body, BAND), "{path}: {}", answer.body);
        let links = attributes(&answer.body, "a[href]", "href");
        let links = links.into_iter().filter(|link| link.starts_with('/'));
        left.extend(links.map(|link| link.split('#').next().unwrap_or_default().to_owned()));
        pages.insert(path);
    }
    pages
}

#[test]
fn every_page_of_a_practice_database_has_the_band() {
    let scratch = Scratch::new();
    let served = practising(&scratch, "sqlite://smsq-practice.db");
    let cookie = served.log_in("admin");
    served.until_shown(&cookie, "/", "href=\"/campaigns/c\"");
    // The pages of a draft in each of its steps.
    let draft = upload(&served, &cookie, "draft.csv", &list(2));
    ready(&served, &cookie, &format!("{draft}/list"));
    let next = save(&served, &cookie, &format!("{draft}/text"), &[("text", "Hi")]);
    let next = save(&served, &cookie, &next, &[("campaign", "drafted")]);
    for page in [
        ready(&served, &cookie, &format!("{draft}/text")),
        ready(&served, &cookie, &format!("{draft}/settings")),
        ready(&served, &cookie, &next),
    ] {
        assert!(has(&page, BAND), "{page}");
    }
    let pages = walk(&served, &cookie);
    for path in [
        "/",
        "/new",
        "/search",
        "/replies",
        "/schedules",
        "/suppression",
        "/audit",
        "/campaigns/c",
        "/campaigns/c/pause",
        "/campaigns/c/report.html",
        "/nothing",
        "/campaigns/nothing",
    ] {
        assert!(pages.contains(path), "{path} is not in {pages:?}");
    }
    // Answers to forms, and to who is not logged in.
    let answers = [
        served.submit(&cookie, "/campaigns/c/pause", ""),
        served.submit(&cookie, "/campaigns/nothing/pause", ""),
        served.submit(&cookie, "/suppression", "phones=1"),
        served.submit(&cookie, "/new/nothing", "x=1"),
        served.page("", "/"),
        served.try_log_in("wrong"),
    ];
    for answer in answers.iter().filter(|answer| is_page(answer)) {
        assert!(has(&answer.body, BAND), "{}", answer.body);
    }
    let csv = served.page(&cookie, "/campaigns/c/sent.csv");
    let name = csv.header("content-disposition").unwrap_or_default();
    assert!(name.contains("practice-c-sent.csv"), "{name}");
}

#[test]
fn page_of_another_database_has_no_band() {
    let scratch = Scratch::new();
    let (served, cookie) = Served::logged_in(&scratch, "admin");
    for path in ["/", "/new", "/audit", "/nothing"] {
        let page = served.page(&cookie, path).body;
        assert!(!has(&page, BAND), "{path}: {page}");
    }
    let campaigns = served.api("admin", "GET", "/v1/campaigns", "").json();
    assert_eq!(campaigns["practice"], false);
    let metrics = served.api("admin", "GET", "/metrics", "").body;
    assert!(metrics.contains("\nsmsq_practice 0\n"), "{metrics}");
}

#[test]
fn every_answer_of_the_api_says_practice() {
    with_every_database(|db| {
        let scratch = Scratch::new();
        let served = practising(&scratch, &db.url);
        let posted = served
            .post(r#"{"phone":"+447400100009","text":"Hello","campaign":"api"}"#)
            .assert_status(202);
        assert_eq!(posted.json()["practice"], true, "{}", posted.body);
        let id = posted.json()["id"].as_str().expect("an id").to_owned();
        let path = format!("/v1/messages/{id}");
        eventually("it is sent", || {
            served.api("admin", "GET", &path, "").json()["state"] == "sent"
        });
        let batch = served.api_with(
            "admin",
            "POST",
            "/v1/messages/batch",
            &[("Content-Type", "application/json")],
            r#"[{"phone":"+447400100010","text":"Hello","campaign":"api"}]"#,
        );
        assert_eq!(batch.json()["practice"], true, "{}", batch.body);
        for path in [
            path.as_str(),
            "/v1/messages?phone=%2B447400100009",
            "/v1/campaigns",
            "/v1/campaigns/c",
            "/v1/schedules",
        ] {
            let answer = served.api("admin", "GET", path, "");
            assert_eq!(answer.json()["practice"], true, "{path}: {}", answer.body);
        }
        let campaigns = served.api("admin", "GET", "/v1/campaigns", "").json();
        let campaigns = campaigns["campaigns"].as_array().expect("a list").clone();
        assert!(campaigns.iter().all(|campaign| campaign["practice"] == true));
        let metrics = served.api("admin", "GET", "/metrics", "").body;
        assert!(metrics.contains("\nsmsq_practice 1\n"), "{metrics}");
        served.stop().assert_code(0);
    });
}

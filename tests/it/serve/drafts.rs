//! New campaigns, made step by step without scripts. What was sent is counted at the gateway.

use std::fmt::Write as _;
use std::fs::{File, FileTimes};
use std::time::{Duration, SystemTime};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use scraper::{Html, Selector};
use smsq_sandbox::SandboxConfig;

use super::{Answer, Served, configure, request};
use crate::support::Scratch;
use crate::support::databases::{Database, with_every_database};
use crate::support::html::{attribute, elements, has};
use crate::support::practice::Practice;
use crate::support::waiting::eventually;

const SEND: [&str; 3] = ["--listen", "127.0.0.1:0", "--send"];
const TESTER: &str = "+447400777777";
const TEXT: &str = "Hi {{ name }}, your order {{ order }} is ready – see you";
/// 24 rows: a title, numbers in several forms, a duplicate, a suppressed one, and two that cannot be used.
const ROWS: usize = 24;

fn untidy() -> String {
    let mut list = "Customers;;\nname;Mobile;order\n".to_owned();
    for row in 0..ROWS {
        let number = match row {
            3 => "n/a".to_owned(),
            4 => "07400 100000".to_owned(),
            5 => String::new(),
            _ if row % 2 == 0 => format!("07400 1000{row:02}"),
            _ => format!("+44 (0) 74001000{row:02}"),
        };
        let _ = writeln!(list, "Zoë {row};{number};A-{row}");
    }
    list
}

fn form(fields: &[(&str, &str)]) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn post_list(served: &Served, cookie: &str, site: &str, part: &str) -> Answer {
    let headers = [
        ("Cookie", cookie),
        ("Sec-Fetch-Site", site),
        ("Content-Type", "multipart/form-data; boundary=x"),
    ];
    let body = format!("--x\r\nContent-Disposition: form-data; {part}\r\n--x--\r\n");
    let answer = request(&served.address, "POST", "/new", &headers, body.as_bytes());
    answer.expect("an answer")
}

/// Uploads a list; returns the address of its draft.
pub(super) fn upload(served: &Served, cookie: &str, name: &str, list: &str) -> String {
    let part = format!("name=\"file\"; filename=\"{name}\"\r\n\r\n{list}");
    let answer = post_list(served, cookie, "same-origin", &part).assert_status(303);
    let step = answer.header("location").expect("an address");
    step.strip_suffix("/list").expect("the first step").to_owned()
}

/// A page, when what it waits for is done.
pub(super) fn ready(served: &Served, cookie: &str, path: &str) -> String {
    let mut body = String::new();
    eventually(&format!("{path} is ready"), || {
        let answer = served.page(cookie, path).assert_status(200);
        body = answer.body;
        !has(&body, "#live progress")
    });
    body
}

/// Sends a form that is accepted; returns where it leads.
pub(super) fn save(served: &Served, cookie: &str, path: &str, fields: &[(&str, &str)]) -> String {
    let answer = served.submit(cookie, path, &form(fields));
    assert_eq!(answer.status, 303, "{path}: {}", answer.body);
    answer.header("location").expect("an address").to_owned()
}

/// Names and values of the facts of a page.
fn facts(page: &str) -> Vec<(String, String)> {
    let html = Html::parse_document(page);
    let of = |selector: &str| -> Vec<String> {
        let selector = Selector::parse(selector).expect("a selector");
        let found = html.select(&selector);
        found.map(|element| element.text().collect::<String>().trim().to_owned()).collect()
    };
    of(".facts dt").into_iter().zip(of(".facts dd")).collect()
}

fn start(served: &Served, cookie: &str, draft: &str, page: &str) -> Answer {
    let fingerprint = attribute(page, "[name=fingerprint]", "value").expect("a fingerprint");
    let path = format!("{draft}/start");
    served.submit(cookie, &path, &form(&[("fingerprint", &fingerprint)]))
}

/// Waits until the import of a started draft leads to its campaign.
fn until_imported(served: &Served, cookie: &str, draft: &str) -> String {
    let mut path = String::new();
    eventually("the list is imported", || {
        let answer = served.page(cookie, draft);
        answer.header("location").unwrap_or_default().clone_into(&mut path);
        path.starts_with("/campaigns/")
    });
    path
}

fn prepared(db: &Database, more: &str) -> (Practice, Scratch) {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").at(&db.url).scratch();
    let text = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("default_region = \"GB\"\n{text}\n{more}"));
    (gateway, scratch)
}

#[test]
fn campaign_is_made_checked_tested_and_started() {
    with_every_database(|db| {
        let (gateway, scratch) = prepared(db, "");
        scratch.run(["suppress", "add", "+447400100006"]).assert_code(0);
        let tokens = configure(&scratch, "");
        let served = Served::running(&scratch, tokens, &SEND);
        let cookie = served.log_in("operate");
        let draft = upload(&served, &cookie, "list.csv", &untidy());
        let page = ready(&served, &cookie, &format!("{draft}/list"));
        let phone = ("phone".to_owned(), "Mobile".to_owned());
        assert!(facts(&page).contains(&phone), "{page}");
        assert!(page.contains("header in line 2"), "{page}");

        let path = format!("{draft}/text");
        assert!(ready(&served, &cookie, &path).contains("{{ order }}"));
        let next = save(&served, &cookie, &path, &[("text", TEXT)]);
        assert_eq!(next, format!("{draft}/settings"));
        let page = ready(&served, &cookie, &path);
        assert!(page.contains("Hi Zoë 0, your order A-0 is ready"), "{page}");
        let fields = [("campaign", "autumn"), ("rate", "900/s"), ("expires", "+8h")];
        let next = save(&served, &cookie, &next, &fields);
        let page = ready(&served, &cookie, &next);

        // The command line says the same.
        scratch.write("list.csv", &untidy());
        let line = ["import", "list.csv", "--text", TEXT, "--campaign", "autumn"];
        let ran =
            scratch.run(line.into_iter().chain(["--expires", "+8h", "--dry-run"])).assert_code(0);
        let shown = facts(&page);
        for (name, value) in &shown {
            // The limit and the time of the start are those of the page.
            if !["sending", "expires"].contains(&name.as_str()) {
                let printed = ran.stdout().replace('`', "");
                let line = format!("{name:<10}  {value}");
                assert!(printed.contains(&line), "{line}: {ran}");
            }
        }
        let would_send = ("would send".to_owned(), "20".to_owned());
        assert!(shown.contains(&would_send), "{shown:?}");
        assert!(page.contains("900/s"), "{page}");
        let rejects = served.page(&cookie, &format!("{draft}/rejects.csv"));
        let audit = db.words("SELECT detail AS value FROM audit ORDER BY id");
        let id = draft.trim_start_matches("/new/");
        for entry in [
            format!("uploaded a list as draft `{id}`"),
            format!("downloaded the rejected rows of draft `{id}`"),
        ] {
            assert!(audit.contains(&Some(entry.clone())), "{entry}: {audit:?}");
        }
        assert!(rejects.body.contains("n/a"), "{}", rejects.body);
        assert_eq!(rejects.body.lines().count(), 3, "{}", rejects.body);

        save(&served, &cookie, &format!("{draft}/test"), &[("phone", "07400 777777")]);
        eventually("the test is sent", || gateway.accepted() == 1);
        assert_eq!(gateway.messages()[0].to, TESTER);

        let page = ready(&served, &cookie, &format!("{draft}/check"));
        start(&served, &cookie, &draft, &page).assert_status(303);
        // A second click starts nothing.
        start(&served, &cookie, &draft, &page).assert_status(303);
        assert_eq!(until_imported(&served, &cookie, &draft), "/campaigns/autumn");
        eventually("all are sent", || gateway.accepted() == 21);
        served.page(&cookie, &format!("{draft}/text")).assert_status(303);
        let path = "/campaigns/autumn";
        served.until_shown(&cookie, path, "rejected rows of list.csv (2)");
        served.until_shown(&cookie, path, "<span class=\"pill done\">");
        served.stop().assert_code(0);
        assert_eq!(scratch.checked_status(Some("autumn"))["sent"], 20);
        gateway.assert_each_once(21);
        let names = std::fs::read_dir(scratch.path("")).expect("a folder").flatten();
        let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        assert!(names.all(|name| !name.contains("rejects")), "rejects beside the database");
    });
}

#[test]
fn draft_survives_a_kill_and_is_of_its_owner() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let tokens = served.tokens.clone();
    let cookie = served.log_in("operate");
    let draft = upload(&served, &cookie, "list.csv", "phone,name\n+447400123456,Ann\n");
    save(&served, &cookie, &format!("{draft}/text"), &[("text", "Hi {{ name }}")]);
    served.process.kill();
    let served = Served::again(&scratch, tokens, "127.0.0.1:0");
    let cookie = served.log_in("operate");
    assert!(served.page(&cookie, "/new").body.contains(&draft));
    let page = ready(&served, &cookie, &format!("{draft}/text"));
    assert!(page.contains("Hi Ann"), "{page}");

    let other = served.log_in("admin");
    assert!(!served.page(&other, "/new").body.contains(&draft));
    let reader = served.log_in("read");
    for step in ["", "/list", "/text", "/settings", "/check", "/delete", "/rejects.csv"] {
        let path = format!("{draft}{step}");
        assert_eq!(served.page(&other, &path).status, 404, "{path}");
        assert_eq!(served.page(&reader, &path).status, 403, "{path}");
        assert_eq!(
            request(&served.address, "GET", &path, &[], b"").expect("an answer").status,
            401
        );
    }
    for step in ["list", "text", "settings", "check", "test", "start", "delete"] {
        let path = format!("{draft}/{step}");
        for (cookie, status) in [(&other, 404), (&reader, 403), (&String::new(), 401)] {
            assert_eq!(served.submit(cookie, &path, "text=x").status, status, "{path}");
        }
        let foreign = [
            ("Cookie", cookie.as_str()),
            ("Sec-Fetch-Site", "cross-site"),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        let answer = request(&served.address, "POST", &path, &foreign, b"text=x");
        assert_eq!(answer.expect("an answer").status, 403, "{path}");
    }
    let part = "name=\"numbers\"\r\n\r\n+447400123456";
    for (cookie, site, status) in [
        (&reader, "same-origin", 403),
        (&String::new(), "same-origin", 401),
        (&cookie, "cross-site", 403),
        (&cookie, "same-site", 403),
    ] {
        assert_eq!(post_list(&served, cookie, site, part).status, status, "{site}");
    }
    let page = ready(&served, &cookie, &format!("{draft}/text"));
    assert!(page.contains("Hi Ann"), "{page}");

    // Names that are not drafts.
    for id in ["..", "%2e%2e%2f", "0", &"0".repeat(20), "drafts"] {
        assert_eq!(served.page(&cookie, &format!("/new/{id}/list")).status, 404, "{id}");
    }
    save(&served, &cookie, &format!("{draft}/delete"), &[]);
    assert_eq!(served.page(&cookie, &format!("{draft}/list")).status, 404);
}

#[test]
fn draft_is_deleted_a_week_after_its_last_change() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let tokens = served.tokens.clone();
    let cookie = served.log_in("operate");
    let [old, young] = ["old.csv", "young.csv"]
        .map(|name| upload(&served, &cookie, name, "phone\n+447400123456\n"));
    let uploads = std::fs::read_dir(scratch.path(""))
        .expect("a folder")
        .flatten()
        .map(|entry| entry.path().join("drafts"))
        .find(|path| path.is_dir())
        .expect("drafts");
    for (draft, days) in [(&old, 8), (&young, 6)] {
        let id = draft.rsplit('/').next().expect("an id");
        let age = Duration::from_secs(days * 24 * 60 * 60);
        let times = FileTimes::new().set_modified(SystemTime::now() - age);
        let file = File::options().write(true).open(uploads.join(id).join("fields.json"));
        file.and_then(|file| file.set_times(times)).expect("an older file");
    }
    served.stop();
    let served = Served::again(&scratch, tokens, "127.0.0.1:0");
    let cookie = served.log_in("operate");
    eventually("the old one is deleted", || {
        served.page(&cookie, &format!("{old}/list")).status == 404
    });
    assert!(served.page(&cookie, "/new").body.contains("young.csv"));
}

#[test]
fn wrong_fields_have_their_errors_beside_them() {
    let scratch = Scratch::new();
    let (served, cookie) = Served::logged_in(&scratch, "operate");
    let draft = upload(&served, &cookie, "list.csv", "phone,name\n+447400123456,<b>Ann\n");
    for (step, field, value, expected) in [
        ("list", "region", "Atlantis", "Invalid "),
        ("list", "encoding", "klingon", "Invalid "),
        ("list", "sheet", "Old", "is not a workbook"),
        ("text", "text", "Hi {{ nam }}", "Unknown column"),
        ("text", "text", "Hi {{ name", "unexpected end of input"),
        ("settings", "rate", "x", "Invalid rate "),
        ("settings", "budget", "500", "add its currency"),
        ("settings", "at", "yesterday", "use a time such as"),
        ("settings", "at", "2020-01-01T00:00:00Z", "is in the past"),
        ("settings", "expires", "2020-01-01T00:00:00Z", "is in the past"),
        ("settings", "window", "25-3", "Invalid "),
        ("settings", "provider", "nope", "Unknown provider"),
        ("settings", "campaign", "..", "are folders"),
        ("settings", "max-rejects", "many", "Invalid "),
    ] {
        let path = format!("{draft}/{step}");
        let next = save(&served, &cookie, &path, &[(field, value)]);
        assert_eq!(next, format!("{path}?checked=true"));
        let page = ready(&served, &cookie, &next);
        let problem = elements(&page, &format!("#{field}-problem, #problem")).join("");
        let problem = problem.replace("<code>", "").replace("</code>", "");
        assert!(problem.contains(expected), "{field}={value}: {page}");
        // What was entered is still there.
        let kept = [
            attribute(&page, &format!("input[name={field}]"), "value"),
            attribute(&page, &format!("select[name={field}] option[selected]"), "value"),
        ];
        let in_area = elements(&page, &format!("textarea[name={field}]"));
        assert!(
            kept.contains(&Some(value.to_owned())) || in_area.join("").contains(value),
            "{field}={value}: {page}"
        );
        save(&served, &cookie, &path, &[(field, "")]);
    }
    for (part, expected) in [
        ("name=\"file\"; filename=\"\"\r\n\r\n", "Missing list"),
        ("name=\"numbers\"\r\n\r\n  ", "Missing list"),
        ("name=\"other\"\r\n\r\nx", "Unknown field"),
    ] {
        let answer = post_list(&served, &cookie, "same-origin", part).assert_status(400);
        assert!(answer.body.contains(expected), "{}", answer.body);
    }
    let binary = upload(&served, &cookie, "../../list\".csv", "\0\0PNG\0");
    let page = ready(&served, &cookie, &format!("{binary}/list"));
    assert!(page.contains("is not a text file"), "{page}");
    assert!(!scratch.path("../list\".csv").exists());

    // Texts of strangers are not markup.
    save(&served, &cookie, &format!("{draft}/text"), &[("text", "{{ name }}<script>")]);
    for step in ["list", "text", "check"] {
        let page = ready(&served, &cookie, &format!("{draft}/{step}"));
        assert!(page.contains("&lt;b&gt;Ann"), "{page}");
        assert!(!page.contains("<b>Ann") && !page.contains("}<script>"), "{page}");
    }
}

#[test]
fn draft_that_cannot_be_imported_can_be_changed() {
    with_every_database(|db| {
        let (gateway, scratch) = prepared(db, "");
        let tokens = configure(&scratch, "");
        let served = Served::running(&scratch, tokens, &SEND);
        let cookie = served.log_in("operate");
        let list = "phone\n+447400123456\n";
        let draft = upload(&served, &cookie, "list.csv", list);
        let path = format!("{draft}/settings");
        save(&served, &cookie, &format!("{draft}/text"), &[("text", "Hello")]);
        save(&served, &cookie, &path, &[("campaign", "c"), ("at", "+1h")]);
        let page = ready(&served, &cookie, &format!("{draft}/check"));
        // Another import makes the campaign, which is cancelled.
        scratch.write("other.csv", "phone\n+447400123457\n");
        scratch
            .run(["import", "other.csv", "--campaign", "c", "--text", "x", "--at", "+1h"])
            .assert_code(0);
        scratch.run(["cancel", "c"]).assert_code(0);
        start(&served, &cookie, &draft, &page).assert_status(303);
        let mut page = String::new();
        eventually("it is a draft again", || {
            page = served.page(&cookie, &format!("{draft}/check")).body;
            page.contains("is cancelled")
        });
        save(&served, &cookie, &path, &[("campaign", "d"), ("at", "")]);
        let page = ready(&served, &cookie, &format!("{draft}/check"));
        // What was looked at before is not started.
        let old = form(&[("fingerprint", "0")]);
        served.submit(&cookie, &format!("{draft}/start"), &old).assert_status(400);
        assert_eq!(start(&served, &cookie, &draft, &page).status, 303);
        eventually("it is sent", || gateway.accepted() == 1);
        assert!(gateway.phones().contains("+447400123456"));
        served.stop();
    });
}

#[test]
fn large_draft_waits_for_another_person() {
    with_every_database(|db| {
        let (gateway, scratch) = prepared(db, "[approval]\nfrom_messages = 10\n");
        let tokens = configure(&scratch, "");
        let served = Served::running(&scratch, tokens, &SEND);
        let cookie = served.log_in("operate");
        let numbers: Vec<String> = (0..12).map(|row| format!("074001000{row:02}")).collect();
        let numbers = numbers.join("\n");
        let part = format!("name=\"numbers\"\r\n\r\n{numbers}");
        let answer = post_list(&served, &cookie, "same-origin", &part);
        let draft = answer.header("location").expect("an address");
        let draft = draft.strip_suffix("/list").expect("the first step");
        save(&served, &cookie, &format!("{draft}/text"), &[("text", "Hello")]);
        save(&served, &cookie, &format!("{draft}/settings"), &[("campaign", "c")]);
        let page = ready(&served, &cookie, &format!("{draft}/check"));
        assert!(page.contains("a second person has to approve it"), "{page}");
        assert_eq!(start(&served, &cookie, draft, &page).status, 303);
        until_imported(&served, &cookie, draft);
        served.until_shown(&cookie, "/campaigns/c", "unapproved");
        served.confirm(&cookie, "/campaigns/c/approve", "").assert_status(403);
        let other = served.log_in("admin");
        let question = served.page(&other, "/campaigns/c/approve").body;
        assert!(question.contains("would send"), "{question}");
        assert_eq!(gateway.accepted(), 0);
        served.confirm(&other, "/campaigns/c/approve", "").assert_status(200);
        eventually("all are sent", || gateway.accepted() == 12);
        served.stop();
        gateway.assert_each_once(12);
    });
}

//! `smsq report` and `smsq status` in all their formats.

use serde_json::Value;
use smsq_sandbox::SandboxConfig;

use crate::support::databases::{Database, with_every_database};
use crate::support::practice::{Practice, list};
use crate::support::scripted::Scripted;
use crate::support::{Gateway, Scratch};

/// Two countries, both alphabets, an opt-out, a duplicate row and an invalid phone.
const PEOPLE: &str = "\
phone,name
+447400301000,Ann
+447400301001,王芳
+4915123456789,Bob
+15005552000,Carla
+447400301000,Ann again
12,Dan
";

fn sent_people(scratch: &Scratch) -> Gateway {
    let gateway = Gateway::start_cellar(scratch, &[]);
    let toml = scratch.read("smsq.toml");
    let prices = "[prices.cellar]\ncurrency = \"EUR\"\n44 = 0.04\n4474 = 0.0355\n49 = 0.07\n";
    scratch.write("smsq.toml", &format!("{toml}{prices}"));
    scratch.write("people.csv", PEOPLE);
    let text = "Hi {{ name }}";
    let import = ["import", "people.csv", "--text", text, "--campaign", "c", "--from", "ACME"];
    scratch.run(import).assert_code(0);
    scratch.run(["send", "--quiet"]).assert_code(1);
    gateway
}

fn html(scratch: &Scratch, more: &[&str]) -> String {
    let line = ["report", "--campaign", "c", "--format", "html"];
    let ran = scratch.run(line.into_iter().chain(more.iter().copied())).assert_code(0);
    ran.stdout()
}

fn json(scratch: &Scratch, more: &[&str]) -> Value {
    let line = ["report", "--campaign", "c", "--format", "json"];
    scratch.run(line.into_iter().chain(more.iter().copied())).json()
}

#[test]
fn report_has_cost_countries_text_and_list() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let _gateway = sent_people(&scratch);
        let whole = scratch.run(["report"]);
        assert!(whole.stdout().contains("  text        Hi {{ name }}\n"), "{whole}");
        let report = json(&scratch, &[]);
        assert_eq!(report["segments"], 3, "{report:#}");
        assert_eq!(report["alphabets"], serde_json::json!({ "gsm7": 3, "ucs2": 1 }));
        let eur = |amount: &str| serde_json::json!({ "amount": amount, "currency": "EUR", "unpriced": 0 });
        assert_eq!(report["cost"], eur("0.141"));
        assert_eq!(
            report["countries"],
            serde_json::json!([
                { "name": "GB +44", "sent": 2, "segments": 2, "cost": eur("0.071") },
                { "name": "DE +49", "sent": 1, "segments": 1, "cost": eur("0.07") },
            ])
        );
        assert_eq!(report["providers"][0]["name"], "cellar");
        assert_eq!(report["sender"], "ACME");
        assert_eq!(report["text"], "Hi {{ name }}");
        assert_eq!(
            report["lists"],
            serde_json::json!({
                "names": ["people.csv"], "count": 1, "rows": 6, "accepted": 4,
                "duplicates": 1, "suppressed": 0, "rejected": 1,
            })
        );
        assert_eq!(report["opted_out"], 1);
        assert!(report["first_sent_at"].is_string(), "{report:#}");
        let text = scratch.run(["report", "--campaign", "c"]).stdout();
        for words in [
            "  cost        0.141 EUR\n",
            "  countries   GB +44: 2 messages, 2 segments, 0.071 EUR\n",
            "              DE +49: 1 message, 1 segment, 0.07 EUR\n",
            "  provider    cellar (sender ACME)\n",
            "  segments    3 (3 messages imported in GSM-7, 1 in UCS-2)\n",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let page = html(&scratch, &[]);
        for words in ["0.141 EUR", "DE +49", "Hi {{ name }}", "people.csv", "sender ACME"] {
            assert!(page.contains(words), "{words}\n{page}");
        }
    });
}

#[test]
fn sent_report_has_the_columns_of_an_invoice() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let _gateway = sent_people(&scratch);
        let csv = scratch.run(["report", "--sent", "--format", "csv"]).stdout();
        let mut lines = csv.lines();
        assert_eq!(
            lines.next(),
            Some(
                "phone,campaign,provider,message_id,segments,price,sent_at,attempts,accepted,delivery,delivered_at"
            )
        );
        let mut phones: Vec<&str> = lines.filter_map(|line| line.split(',').next()).collect();
        phones.sort_unstable();
        assert_eq!(phones, ["+447400301000", "+447400301001", "+4915123456789"]);
        let report = json(&scratch, &["--sent"]);
        let messages = report["messages"].as_array().expect("a list");
        assert_eq!(messages.len(), 3);
        assert_eq!(report.get("failures"), None);
        for message in messages {
            assert_eq!(message["provider"], "cellar");
            assert_eq!(message["segments"], 1);
            assert!(message["message_id"].is_string(), "{message}");
            let at = message["sent_at"].as_str().expect("an instant");
            assert!(at.ends_with('Z') && at.contains('T'), "{at}");
            assert_eq!((&message["attempts"], &message["accepted"]), (&1.into(), &1.into()));
        }
        let text = scratch.run(["report", "--sent", "--campaign", "c"]).stdout();
        assert_eq!(text.lines().count(), 3, "{text}");
        for wrong in [&["--failed"][..], &["--format", "html"]] {
            let line = ["report", "--sent"].into_iter().chain(wrong.iter().copied());
            scratch.run(line).assert_code(2);
        }
    });
}

#[test]
fn masked_report_hides_phones_and_texts() {
    let scratch = Scratch::new();
    let _gateway = sent_people(&scratch);
    assert!(html(&scratch, &[]).contains("+15005552000"));
    let mut shown = vec![html(&scratch, &["--mask"])];
    for format in ["text", "csv", "json"] {
        for list in ["--failed", "--sent"] {
            let ran = scratch.run(["report", "--mask", list, "--format", format]).assert_code(0);
            shown.push(ran.stdout());
        }
    }
    for text in shown {
        for private in ["+15005552000", "+447400301000", "Hi Carla", "Carla", "Hi {{"] {
            assert!(!text.contains(private), "{private}\n{text}");
        }
    }
}

#[test]
fn page_shows_local_time_and_names_the_zone() {
    let scratch = Scratch::new();
    let _gateway = sent_people(&scratch);
    let zone = [("TZ", "Asia/Shanghai")];
    let line = ["report", "--campaign", "c", "--format", "html"];
    let page = scratch.run_with(line, &zone).stdout();
    assert!(page.contains("Shanghai (CST, UTC+08:00)"), "{page}");
    assert!(!page.contains("UTC<"), "{page}");
    let text = scratch.run_with(["report", "--campaign", "c"], &zone).stdout();
    assert!(text.contains(" CST to "), "{text}");
}

#[test]
fn page_counts_only_listed_messages_after_a_purge() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        scratch.import(&list(6));
        scratch.run(["cancel", "--campaign", "c"]).assert_code(0);
        assert!(html(&scratch, &[]).contains("Why 6 did not arrive"));
        let phone = scratch.failures("c")[0]["phone"].clone();
        let phone = phone.as_str().expect("a phone");
        scratch.run(["purge", "--phone", phone, "--yes"]).assert_code(0);
        let page = html(&scratch, &[]);
        assert!(page.contains("Why 5 did not arrive"), "{page}");
        assert_eq!(page.matches(r#"<td class="phone">"#).count(), 5, "{page}");
        assert!(!page.contains("The first"), "{page}");
    });
}

#[test]
fn purge_removes_the_text_of_the_first_message() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        scratch.write("own.csv", "phone,content\n+447400301000,Your code is 4711\n");
        scratch.run(["import", "own.csv", "--campaign", "c"]).assert_code(0);
        assert_eq!(json(&scratch, &[])["text"], "Your code is 4711");
        scratch.run(["purge", "--phone", "+447400301000", "--yes"]).assert_code(0);
        assert_eq!(json(&scratch, &[])["text"], Value::Null);
        let kept = "SELECT count(*) AS value FROM import WHERE sample IS NOT NULL";
        assert_eq!(db.number(kept), 0);
    });
}

#[test]
fn unknown_messages_are_shown_as_unknown() {
    let scratch = Scratch::new();
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    scratch.import("phone\n+15005555000\n+15005551000\n+447400301000\n");
    scratch.run(["send", "--quiet"]).assert_code(1);
    let page = html(&scratch, &[]);
    for words in ["Why 1 did not arrive", "Why 1 is unknown", "unknown</dt>"] {
        assert!(page.contains(words), "{words}\n{page}");
    }
}

#[test]
fn page_shortens_json_to_its_message() {
    let scratch = Scratch::new();
    let said =
        r#"{"fault":{"id":"x-77","message":"no route to \"that\" carrier"},"trace":"abcdefgh"}"#;
    let gateway = Scripted::start("400 Bad Request", said);
    scratch.write_cellar(&gateway.url());
    scratch.import("phone\n+447400301000\n");
    scratch.run(["send", "--quiet"]).assert_code(1);
    let page = html(&scratch, &[]);
    let text = scratch.run(["report", "--campaign", "c"]).stdout();
    for shown in [&page, &text] {
        assert!(shown.contains("no route to"), "{shown}");
        assert!(!shown.contains("trace"), "{shown}");
    }
    let kept = json(&scratch, &[])["by_reason"][0]["reason"].to_string();
    assert!(kept.contains("trace"), "{kept}");
}

#[test]
fn send_without_acceptances_prints_no_rate() {
    let scratch = Scratch::new();
    let gateway = Scripted::start("400 Bad Request", "{}");
    scratch.write_cellar(&gateway.url());
    scratch.import("phone\n+447400301000\n+447400301001\n");
    let ran = scratch.run(["send"]);
    assert!(ran.stdout().contains("2 failed"), "{ran}");
    assert!(!ran.stdout().contains("/s)"), "{ran}");
}

#[test]
fn watched_status_has_a_progress_bar() {
    let db = Database::in_a_file();
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").at(&db.url).imported(&list(20));
    scratch.run(["send", "--quiet"]).assert_code(0);
    let ran = scratch.run(["status", "--watch"]).assert_code(0);
    let bar = format!("\n{} 100.0 %  20 of 20\n", "━".repeat(40));
    assert!(ran.stdout().contains(&bar), "{ran}");
}

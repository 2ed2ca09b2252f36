//! Budgets: the money that the real program spends, by what the gateway accepted, never exceeds them, also if workers
//! are killed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use smsq_sandbox::{FaultRate, Faults, SandboxConfig};

use crate::support::databases::with_every_database;
use crate::support::practice::{Practice, list, with_latency};
use crate::support::timed_provider::{Reply, TimedProvider};
use crate::support::{Ran, Scratch};

const SEND: [&str; 4] = ["send", "--concurrency", "4", "--quiet"];
/// What a message costs, as `prices` says.
const PRICES: &str = "[prices.cellar]\ncurrency = \"EUR\"\nother = 0.04\n";

/// A provider with prices that honours no references; `limits`: keys of section `[limits]`.
fn configure(gateway: &Practice, scratch: &Scratch, limits: &str) {
    gateway.without_references("").configure(scratch);
    let toml = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("[limits]\n{limits}\n{toml}\n{PRICES}"));
}

fn import(scratch: &Scratch, campaign: &str, rows: u64, more: &[&str]) -> Ran {
    scratch.write("list.csv", &list(rows));
    let line = ["import", "list.csv", "--again", "--text", "Hello", "--campaign", campaign];
    scratch.run([&line[..], more].concat())
}

fn run(scratch: &Scratch, line: &[&str], code: i32) -> Ran {
    let ran = scratch.run(line.iter().copied());
    assert_eq!(ran.code(), Some(code), "{line:?}: {ran}");
    ran
}

fn count(status: &serde_json::Value, key: &str) -> u64 {
    status[key].as_u64().expect("a count")
}

#[test]
fn killed_workers_spend_the_budget_and_not_more() {
    with_every_database(|db| {
        let mut random = StdRng::seed_from_u64(7);
        let gateway = Practice::start(SandboxConfig {
            latency: Duration::from_millis(5),
            jitter: Duration::from_millis(20),
            ignore_references: true,
            faults: Faults { unavailable: FaultRate::Part(0.2), ..Faults::default() },
            ..SandboxConfig::default()
        });
        let scratch = Scratch::at(&db.url);
        configure(&gateway, &scratch, "");
        let ran = import(&scratch, "c", 400, &["--budget", "8.03 EUR"]).assert_code(0);
        assert!(ran.stdout().contains("above the budget of 8.03 EUR"), "{ran}");
        for kills in 0..5 {
            let mut workers = [(); 3].map(|()| scratch.start(SEND));
            let until = gateway.requests() + random.random_range(5..30);
            let alive = workers[0].until("requests", || gateway.requests() >= until);
            for worker in workers {
                worker.kill();
            }
            assert!(alive || kills > 3, "it ended before kill {kills}");
            let spent = count(&scratch.checked_status(Some("c")), "sent");
            assert!(spent <= 200 && gateway.accepted() <= 200);
        }
        let workers = [(); 3].map(|()| scratch.start(SEND));
        for worker in workers {
            let ran = worker.ended().assert_code(3);
            assert!(ran.stderr().contains("the budget of 8.03 EUR is used up"), "{ran}");
        }
        let status = scratch.checked_status(Some("c"));
        let (sent, unknown) = (count(&status, "sent"), count(&status, "unknown"));
        assert_eq!(sent + unknown, 200, "{status}");
        assert_eq!(status["budget"]["spent"], "8.00", "{status}");
        assert!(gateway.accepted() >= sent && gateway.accepted() <= 200);
        assert_eq!(status["state"], "paused", "{status}");

        run(&scratch, &["set", "--campaign", "c", "--budget", "8.20EUR"], 0);
        run(&scratch, &["resume", "--campaign", "c"], 0);
        run(&scratch, &SEND, 3);
        let status = scratch.checked_status(Some("c"));
        assert_eq!(count(&status, "sent") + count(&status, "unknown"), 205);
        run(&scratch, &["set", "--campaign", "c", "--budget", "none"], 0);
        run(&scratch, &["resume", "--campaign", "c"], 0);
        scratch.run(SEND);
        let status = scratch.checked_status(Some("c"));
        assert_eq!(count(&status, "queued"), 0, "{status}");
    });
}

#[test]
fn budget_of_the_month_is_shared_by_campaigns() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = Scratch::at(&db.url);
        configure(&gateway, &scratch, "budget = [\"1 EUR/month\"]");
        import(&scratch, "a", 20, &[]).assert_code(0);
        import(&scratch, "b", 20, &[]).assert_code(0);
        let ran = run(&scratch, &SEND, 3);
        assert!(ran.stderr().contains("the budget of 1.00 EUR per month"), "{ran}");
        assert_eq!(gateway.accepted(), 25);
        let status = run(&scratch, &["status", "--format", "json"], 0).json();
        assert_eq!(status["month_budgets"][0]["spent"], "1.00", "{status}");
        // The budget of the month is used up.
        run(&scratch, &SEND, 3);
        assert_eq!(gateway.accepted(), 25);
        configure(&gateway, &scratch, "budget = [\"2 EUR/month\"]");
        run(&scratch, &SEND, 0);
        assert_eq!(gateway.accepted(), 40);
    });
}

#[test]
fn running_worker_follows_a_changed_budget() {
    let gateway = Practice::start(with_latency(20));
    let scratch = Scratch::new();
    configure(&gateway, &scratch, "");
    import(&scratch, "c", 60, &["--budget", "0.40 EUR"]).assert_code(0);
    let mut sending = scratch.start(["send", "--quiet", "--follow"]);
    let ten = sending.until("the budget is used up", || gateway.accepted() == 10);
    assert!(ten);
    let paused = || scratch.checked_status(Some("c"))["state"] == "paused";
    assert!(sending.until("it is paused", paused));
    run(&scratch, &["set", "c", "--budget", "0.60 EUR"], 0);
    run(&scratch, &["resume", "c"], 0);
    assert!(sending.until("it continues", || gateway.accepted() == 15));
    assert!(sending.until("it is paused", paused));
    sending.kill();
    assert_eq!(gateway.accepted(), 15);
}

#[test]
fn invalid_budgets_are_one_clear_error() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    configure(&gateway, &scratch, "");
    let refused = |ran: Ran, expected: &str| {
        assert_eq!(ran.code(), Some(2), "{ran}");
        assert!(ran.stderr().contains(expected), "{expected}: {ran}");
        assert_eq!(gateway.requests(), 0);
    };
    for (budget, expected) in [
        ("500", "add its currency, such as `500 EUR`"),
        ("500 €uro", "write an amount and its currency"),
        ("0 EUR", "it must be more than 0"),
        ("5 EUR/month", "write an amount and its currency"),
        ("5 USD", "the budget is in USD, but the prices in `[prices.cellar]` are in EUR"),
    ] {
        refused(import(&scratch, "c", 3, &["--budget", budget]), expected);
    }
    refused(import(&scratch, "c", 3, &["--budget=-5 EUR"]), "it must be more than 0");
    let other = ["--budget", "5 EUR", "--provider", "sandbox"];
    refused(
        import(&scratch, "c", 3, &other),
        "add a section `[prices.sandbox]`, or set `unpriced = \"allow\"` in `[limits]`",
    );
    configure(&gateway, &scratch, "budget = [\"5 EUR/week\"]");
    refused(import(&scratch, "c", 3, &[]), "per month");
    configure(&gateway, &scratch, "unpriced = \"allow\"");
    import(&scratch, "c", 3, &other).assert_code(0);
}

#[test]
fn budget_below_what_is_spent_is_refused() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    configure(&gateway, &scratch, "");
    import(&scratch, "c", 10, &["--budget", "1 EUR"]).assert_code(0);
    run(&scratch, &SEND, 0);
    let lower = ["--budget", "0.30 EUR"];
    let expected = "campaign `c` has spent 0.40 EUR, which is more than a budget of 0.30 EUR";
    let ran = import(&scratch, "c", 12, &lower).assert_code(2);
    assert!(ran.stderr().contains(expected), "{ran}");
    let ran = scratch.run(["set", "c", "--budget", "0.30 EUR"]).assert_code(2);
    assert!(ran.stderr().contains(expected), "{ran}");
    let status = scratch.run(["status", "--campaign", "c"]);
    let shown = "budget 1.00 EUR, of which 0.40 EUR is spent";
    assert!(status.stdout().contains(shown), "{status}");
}

#[test]
fn budget_counts_what_was_spent_without_one() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    configure(&gateway, &scratch, "");
    import(&scratch, "c", 10, &[]).assert_code(0);
    run(&scratch, &SEND, 0);
    let ran = run(&scratch, &["set", "c", "--budget", "0.30 EUR"], 2);
    assert!(ran.stderr().contains("`c` has spent 0.40 EUR"), "{ran}");
    run(&scratch, &["set", "c", "--budget", "0.50 EUR"], 0);
    import(&scratch, "c", 20, &[]).assert_code(0);
    run(&scratch, &SEND, 3);
    assert_eq!(gateway.accepted(), 12);
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["budget"]["spent"], "0.48", "{status}");
}

/// A gateway that accepts everything, at this price.
fn accepting(price: &'static str) -> TimedProvider {
    TimedProvider::start(None, move |_, earlier| {
        Reply::Json(format!(r#"{{"id": "m-{earlier}", "price": "{price}", "currency": "EUR"}}"#))
    })
}

/// The same as [`configure`] for that gateway; `more`: keys of its section.
fn configure_at(url: &str, scratch: &Scratch, limits: &str, more: &str) {
    scratch.write(
        "smsq.toml",
        &format!(
            r#"[limits]
{limits}
[providers.cellar]
kind = "generic"
url = "{url}"
json = {{ to = "{{{{ phone }}}}", text = "{{{{ content }}}}" }}
message_id = "/id"
price = "/price /currency"
{more}
{PRICES}"#
        ),
    );
}

/// Millionths of what so many messages cost, as a budget.
fn budget_for(messages: usize) -> String {
    format!("{}.{:02} EUR", messages * 4 / 100, messages * 4 % 100)
}

#[test]
fn budget_given_while_workers_send_is_kept() {
    with_every_database(|db| {
        let gateway = accepting("0.04");
        let scratch = Scratch::at(&db.url);
        configure_at(&gateway.url(), &scratch, "", "");
        import(&scratch, "c", 4_000, &[]).assert_code(0);
        let mut workers = [(); 3].map(|()| scratch.start(SEND));
        assert!(workers[0].until("it sends", || gateway.sends() > 50));
        // Refused if as much is spent before it is counted.
        let paid = loop {
            let paid = gateway.sends() + 300;
            let ran = scratch.run(["set", "c", "--budget", &budget_for(paid)]);
            if ran.code() == Some(0) {
                break paid;
            }
            assert_eq!(ran.code(), Some(2), "{ran}");
            assert!(ran.stderr().contains("`c` has spent"), "{ran}");
        };
        assert!(paid < 4_000, "there are messages left");
        for worker in workers {
            worker.ended().assert_code(3);
        }
        assert_eq!(gateway.sends(), paid);
        let status = scratch.checked_status(Some("c"));
        assert_eq!(count(&status, "sent"), paid as u64, "{status}");
        assert_eq!(status["state"], "paused", "{status}");
        let spent = budget_for(paid).replace(" EUR", "");
        assert_eq!(status["budget"]["spent"], spent, "{status}");
    });
}

#[test]
fn budget_counts_what_a_monthly_one_did_not() {
    with_every_database(|db| {
        let gateway = accepting("0.04");
        let scratch = Scratch::at(&db.url);
        configure_at(&gateway.url(), &scratch, "", "");
        import(&scratch, "c", 100, &[]).assert_code(0);
        run(&scratch, &SEND, 0);
        configure_at(&gateway.url(), &scratch, "budget = [\"1000 EUR/month\"]", "");
        import(&scratch, "c", 110, &[]).assert_code(0);
        run(&scratch, &SEND, 0);
        let status = run(&scratch, &["status", "--format", "json"], 0).json();
        let month = &status["month_budgets"][0];
        assert_eq!(month["spent"], "0.40", "{status}");
        assert!(month["counted_from"].is_string(), "{status}");
        import(&scratch, "c", 300, &[]).assert_code(0);
        run(&scratch, &["set", "c", "--budget", &budget_for(130)], 0);
        run(&scratch, &SEND, 3);
        assert_eq!(gateway.sends(), 130);
    });
}

#[test]
fn price_of_nothing_is_believed_only_where_it_may_be() {
    with_every_database(|db| {
        let gateway = accepting("0.00");
        let scratch = Scratch::at(&db.url);
        configure_at(&gateway.url(), &scratch, "", "");
        let paid = ["--budget", &budget_for(20)];
        import(&scratch, "c", 60, &paid).assert_code(0);
        run(&scratch, &SEND, 3);
        assert_eq!(gateway.sends(), 20);
        configure_at(&gateway.url(), &scratch, "", "zero_price = \"free\"");
        import(&scratch, "free", 60, &paid).assert_code(0);
        run(&scratch, &["send", "--campaign", "free", "--quiet"], 0);
        assert_eq!(gateway.sends(), 80);
    });
}

#[test]
fn count_that_nobody_finished_is_done_by_the_next_worker() {
    with_every_database(|db| {
        let gateway = accepting("0.04");
        let scratch = Scratch::at(&db.url);
        configure_at(&gateway.url(), &scratch, "", "");
        import(&scratch, "c", 10, &[]).assert_code(0);
        run(&scratch, &SEND, 0);
        import(&scratch, "c", 60, &[]).assert_code(0);
        // What a process leaves that is killed after it has set the budget.
        let budget = budget_for(30);
        db.run(&format!("UPDATE campaign SET budget = '{budget}' WHERE name = 'c'"));
        let status = scratch.checked_status(Some("c"));
        assert!(status["budget"]["spent"].is_null(), "{status}");
        run(&scratch, &SEND, 3);
        assert_eq!(gateway.sends(), 30);
    });
}

#[test]
fn retention_keeps_the_budget_of_a_campaign() {
    with_every_database(|db| {
        let gateway = accepting("0.04");
        let scratch = Scratch::at(&db.url);
        let retention = "\n[retention]\nolder_than = \"30d\"";
        configure_at(&gateway.url(), &scratch, retention, "");
        let paid = ["--budget", &budget_for(10)];
        import(&scratch, "c", 5, &paid).assert_code(0);
        run(&scratch, &SEND, 0);
        let days: i64 = 60 * 24 * 60 * 60 * 1_000;
        db.run(&format!(
            "UPDATE sms_sent SET sent_at = sent_at - {days};
             UPDATE campaign SET created_at = created_at - {days};
             UPDATE import SET created_at = created_at - {days}, finished_at = finished_at - {days};"
        ));
        // Purges first.
        import(&scratch, "other", 1, &[]).assert_code(0);
        assert_eq!(db.number("SELECT count(*) AS value FROM sms_sent"), 0);
        import(&scratch, "c", 40, &[]).assert_code(0);
        run(&scratch, &["send", "--campaign", "c", "--quiet"], 3);
        assert_eq!(gateway.sends(), 10);
    });
}

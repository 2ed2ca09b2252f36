//! The page of the schedules: their runs, and pausing, resuming and running one.

use super::Served;
use crate::support::Scratch;
use crate::support::databases::Database;
use crate::support::shell::sqlite;
use crate::support::waiting::eventually;

#[test]
fn schedule_is_paused_resumed_and_run_on_its_page() {
    let db = Database::in_a_file();
    let scratch = Scratch::at(&db.url);
    let crm = Database::in_a_file();
    crm.run(
        "CREATE TABLE due (id INTEGER, phone TEXT); INSERT INTO due VALUES (1, '+447400100001')",
    );
    scratch.write_cellar("http://127.0.0.1:1");
    let text = scratch.read("smsq.toml");
    let section = format!("[sources.crm]\nurl = \"{}\"\n", crm.url);
    scratch.write("smsq.toml", &format!("{text}\n{section}"));
    scratch.write("due.sql", "SELECT id, phone FROM due");
    let line = [
        "schedule",
        "add",
        "a day",
        "--cron",
        "0 9 * * *",
        "--timezone",
        "UTC",
        "--from",
        "crm",
        "--query",
        "due.sql",
        "--key",
        "id",
        "--text",
        "Hello",
    ];
    scratch.run(line).assert_code(0);
    let (served, cookie) = Served::logged_in(&scratch, "operate");
    let page = served.page(&cookie, "/schedules").body;
    assert!(page.contains("0 9 * * * UTC, one message per id and day"), "{page}");
    for (action, said) in [
        ("pause", "Paused schedule <code>a day</code>."),
        ("resume", "Resumed schedule <code>a day</code>."),
        ("run", "Ran schedule <code>a day</code>: 1 row, 1 accepted into campaign"),
    ] {
        let path = format!("/schedules/a%20day/{action}");
        assert_eq!(served.page(&cookie, &path).status, 200);
        let answer = served.submit(&cookie, &path, "").assert_status(200);
        assert!(answer.body.contains(said), "{}", answer.body);
    }
    let page = served.page(&cookie, "/schedules").body;
    assert!(page.contains("<td>done</td>"), "{page}");
    let campaign = db.words("SELECT name AS value FROM campaign ORDER BY id DESC LIMIT 1");
    let campaign = campaign[0].clone().expect("a name");
    let path = format!(
        "/campaigns/{}",
        campaign.replace(' ', "%20").replace('/', "%2F").replace('-', "%2D")
    );
    assert!(page.contains(&path), "{page}");
    served.until_shown(&cookie, &path, &campaign);
    let audit =
        db.words("SELECT who AS value FROM audit WHERE what = 'schedule' ORDER BY id DESC LIMIT 1");
    assert_eq!(audit, [Some("operate".to_owned())]);
    let listed = served.api("read", "GET", "/v1/schedules", "").json();
    let listed = &listed["schedules"][0];
    assert_eq!((&listed["name"], &listed["runs"][0]["rows"]), (&"a day".into(), &1.into()));
    // The server runs what is due.
    crm.run("INSERT INTO due VALUES (2, '+447400100002')");
    db.run("UPDATE schedule SET next_at = 1000");
    eventually("the schedule runs", || {
        let added = "SELECT count(*) AS value FROM sms WHERE phone LIKE '%0002'";
        db.number(added) == 1
    });
    let reader = served.log_in("read");
    assert!(!served.page(&reader, "/schedules").body.contains("Run now"));
    assert_eq!(served.submit(&reader, "/schedules/a%20day/run", "").status, 403);
    assert_eq!(served.page(&cookie, "/schedules/another/run").status, 404);
}

#[test]
fn reader_sees_that_a_run_failed_and_not_why() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let columns = "name, cron, timezone, source, query, unique_by, per, options, catch_up, fire, period, next_at, created_at, created_by";
    let values = "'s', '0 9 * * *', 'UTC', 'crm', 'SELECT 1', 'id', 'day', '{}', 0, 'x', 'x', 9000000000000000, 0, 'ann'";
    let run = "1, '2026-11-24T09:00', 'x', 's/x', 0, 2, 0, 'value Zebra is odd'";
    sqlite(
        &scratch,
        &format!(
            "INSERT INTO schedule ({columns}) VALUES ({values}); \
             INSERT INTO schedule_run (schedule_id, fire, period, campaign, keys_until, state, started_at, error) VALUES ({run})"
        ),
    );
    for (role, is_shown) in [("read", false), ("operate", true), ("admin", true)] {
        let listed = served.api(role, "GET", "/v1/schedules", "").body;
        let page = served.page(&served.log_in(role), "/schedules").body;
        for shown in [listed, page] {
            assert_eq!(shown.contains("Zebra"), is_shown, "{role}: {shown}");
            assert_eq!(shown.contains("sees why"), !is_shown, "{role}: {shown}");
        }
    }
}

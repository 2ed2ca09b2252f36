//! Thousands of campaigns: every command works, and empty ones can be removed.

use std::cell::RefCell;

use smsq_sandbox::SandboxConfig;

use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::practice::{Practice, list};

/// More than a statement of any engine could have values for.
pub(crate) const CAMPAIGNS: u64 = 5_000;

/// Old campaigns, each with one failed message, which another program inserted.
pub(crate) fn make_campaigns(db: &Database) {
    let name = match db.kind {
        Kind::Sqlite | Kind::Postgres => "'old-' || n",
        Kind::Mysql => "concat('old-', n)",
    };
    let numbers = db.kind.series(CAMPAIGNS);
    db.run(&format!("INSERT INTO campaign (name, created_at) SELECT {name}, 1000 FROM {numbers}"));
    db.run(
        "INSERT INTO sms_failed (id, campaign_id, phone, content, params, class, reason, attempts, claim,
                                 created_at, failed_at)
         SELECT id + 1000000, id, '+447400123456', 'hello', '{}', 'recipient', 'not a valid number', 1, 1, 1000, 1000
         FROM campaign WHERE id > 1 AND name <> 'c' AND name <> 'old-9'",
    );
}

#[test]
fn every_command_works_with_5000_campaigns() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let with_receipts = "[providers.practice.receipts]\nenabled = true\n";
        let scratch = gateway.with_references(with_receipts).at(&db.url).imported(&list(5));
        make_campaigns(db);
        let wrong = RefCell::new(Vec::new());
        let ran = |line: &str, code: i32| {
            let ran = scratch.run(line.split(' '));
            if ran.code() != Some(code) {
                wrong.borrow_mut().push(format!("{line}: {ran}"));
            }
            ran
        };
        ran("check", 0);
        ran("providers list", 0);
        ran("send --quiet --yes", 0);
        gateway.assert_each_once(5);
        let status = ran("status --format json", 0).json();
        assert_eq!(status["failed"], CAMPAIGNS - 1, "{}", status["failed"]);
        assert_eq!(status["sent"], 5);
        ran("report", 0);
        ran("report --format html --output report.html", 0);
        let failed = ran("report --failed --format csv", 0).stdout();
        assert_eq!(failed.lines().count() as u64, CAMPAIGNS);
        ran("report --sent --format csv", 0);
        ran("set --campaign old-1 --priority 2", 0);
        ran("pause old-1", 0);
        ran("resume old-1", 0);
        ran("cancel old-2", 0);
        ran("retry --class content", 0);
        ran("settle --campaign c --unknown sent", 0);
        ran("receipts", 0);
        let purged = ran("purge --older-than 1y --yes --format json", 0).json();
        assert_eq!(purged["failed"], CAMPAIGNS - 1);
        let empty = ran("purge --campaigns --yes --format json", 0).json();
        // The others had messages of another program, which knows their ids.
        assert_eq!(empty["campaigns"], 1, "{empty}");
        db.run("DELETE FROM purged");
        let empty = ran("purge --campaigns --yes --format json", 0).json();
        assert_eq!(empty["campaigns"], CAMPAIGNS - 1, "{empty}");
        assert_eq!(db.number("SELECT count(*) AS value FROM campaign"), 2);
        scratch.write("list.csv", &list(7));
        ran("run list.csv --text hello --campaign d --yes", 0);
        assert_eq!(wrong.take(), Vec::<String>::new());
        scratch.checked_status(Some("c"));
    });
}

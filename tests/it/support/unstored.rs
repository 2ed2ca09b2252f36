//! A database that does not store the results of a worker, and the files that workers leave.

use std::path::PathBuf;
use std::time::Duration;

use smsq_sandbox::SandboxConfig;

use super::Scratch;
use super::databases::{Database, Kind};
use super::practice::{Practice, list};
use super::running::{Running, until_unchanged};
use super::waiting::eventually;

/// From now on no message can be stored as sent.
pub(crate) fn reject_sent_rows(db: &Database) {
    let words = "etwas anderes";
    db.run(&match db.kind {
        Kind::Sqlite => format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON sms_sent BEGIN SELECT RAISE(ABORT, '{words}'); END"
        ),
        Kind::Mysql => format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON sms_sent FOR EACH ROW
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{words}'"
        ),
        Kind::Postgres => format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION '{words}'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON sms_sent FOR EACH ROW EXECUTE FUNCTION refuse()"
        ),
    });
}

pub(crate) fn accept_sent_rows(db: &Database) {
    db.run(match db.kind {
        Kind::Sqlite | Kind::Mysql => "DROP TRIGGER refuse",
        Kind::Postgres => "DROP FUNCTION refuse() CASCADE",
    });
}

/// The files with this ending that workers of the database left.
pub(crate) fn left_files(db: &Database, scratch: &Scratch, ending: &str) -> Vec<PathBuf> {
    let folder = match db.kind {
        Kind::Sqlite => {
            PathBuf::from(format!("{}-unsettled", db.url.trim_start_matches("sqlite://")))
        }
        Kind::Mysql | Kind::Postgres => scratch.path(".local/state/smsq/smsq-unsettled"),
    };
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = files.map(|file| file.path());
    files.filter(|path| path.extension().is_some_and(|end| end == ending)).collect()
}

/// Starts a worker that has results of accepted messages which the database does not store.
pub(crate) fn start_with_unstorable_results(db: &Database) -> (Practice, Scratch, Running) {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").at(&db.url).imported(&list(40));
    reject_sent_rows(db);
    let sending = scratch.start(["send", "--concurrency", "8"]);
    eventually("it sends", || gateway.accepted() > 0);
    until_unchanged("nothing is claimed", Duration::from_millis(500), || gateway.requests());
    (gateway, scratch, sending)
}

//! Commands that only read: they write nothing, and need only read access to the database.

use std::fs;

use crate::support::Scratch;
use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::disk::Disk;
use crate::support::practice::list;

/// The commands that write nothing.
const READING: [&[&str]; 5] = [
    &["status"],
    &["report"],
    &["check", "--offline"],
    &["suppress", "list"],
    &["import", "list.csv", "--text", "Hi", "--dry-run"],
];

/// The names of all tables.
fn tables(db: &Database) -> Vec<Option<String>> {
    db.words(match db.kind {
        Kind::Sqlite => "SELECT name AS value FROM sqlite_master WHERE type = 'table' ORDER BY 1",
        Kind::Mysql => {
            "SELECT table_name AS value FROM information_schema.tables
             WHERE table_schema = database() ORDER BY 1"
        }
        Kind::Postgres => {
            "SELECT table_name AS value FROM information_schema.tables
             WHERE table_schema = current_schema() ORDER BY 1"
        }
    })
}

#[test]
fn reading_commands_create_no_tables() {
    with_every_database(|db| {
        db.run("CREATE TABLE users (id INTEGER)");
        let scratch = Scratch::at(&db.url);
        scratch.write_cellar("http://127.0.0.1:9").write("list.csv", &list(1));
        let send: &[&str] = &["send"];
        for line in READING.into_iter().chain([send]) {
            let ran = scratch.run(line.iter().copied());
            let is_reported = match line[0] {
                "check" => ran.stdout().contains("has no tables of smsq yet: `smsq import`"),
                "import" => ran.stdout().contains("would send  1\n"),
                _ => ran.stderr().contains("has no tables of smsq yet\nhint: `smsq import`"),
            };
            assert!(is_reported, "{ran}");
            assert_eq!(tables(db), [Some("users".to_owned())], "{ran}");
        }
    });
}

#[test]
fn reading_commands_leave_the_file_unchanged() {
    let scratch = Scratch::new();
    scratch.write_cellar("http://127.0.0.1:9");
    scratch.import(&list(3));
    let before = fs::read(scratch.path("smsq.db")).expect("the file");
    for line in READING {
        scratch.run(line.iter().copied()).assert_code(0);
    }
    assert_eq!(fs::read(scratch.path("smsq.db")).expect("the file"), before);
}

#[test]
fn database_on_a_read_only_disk_can_be_read() {
    let scratch = Scratch::new();
    scratch.write_cellar("http://127.0.0.1:9").write("list.csv", &list(3));
    let Some(mut disk) = Disk::mount(&scratch, "4m") else {
        return;
    };
    disk.smsq("import list.csv --text Hi --campaign c").assert_code(0);
    disk.run("mount -o remount,ro disk").assert_code(0);
    for line in READING {
        disk.smsq(&line.join(" ")).assert_code(0);
    }
    let ran = disk.smsq("status");
    assert!(ran.stdout().contains("imported  3"), "{ran}");
    disk.smsq("pause --campaign c").assert_code(2);
}

#[test]
fn reading_commands_need_only_select_on_a_server() {
    with_every_database(|db| {
        if db.kind == Kind::Sqlite {
            return;
        }
        let owner = Scratch::at(&db.url);
        owner.write_cellar("http://127.0.0.1:9");
        owner.import(&list(3));
        let name = db.url.rsplit_once('/').expect("a path").1;
        let user = format!("reader_{name}");
        let (make, drop) = match db.kind {
            Kind::Mysql => (
                format!(
                    "CREATE USER {user} IDENTIFIED BY 'pw'; GRANT SELECT ON {name}.* TO {user}"
                ),
                format!("DROP USER {user}"),
            ),
            _ => (
                format!(
                    "CREATE ROLE {user} LOGIN PASSWORD 'pw';
                     ALTER ROLE {user} SET default_transaction_read_only = on;
                     GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}"
                ),
                format!("DROP OWNED BY {user}; DROP ROLE {user}"),
            ),
        };
        db.run(&make);
        let scratch = Scratch::at(&db.url_for(&format!("{user}:pw")));
        scratch.write_cellar("http://127.0.0.1:9").write("list.csv", &list(3));
        let ran = READING.map(|line| scratch.run(line.iter().copied()));
        db.run(&drop);
        for ran in ran {
            assert_eq!(ran.code(), Some(0), "{ran}");
        }
    });
}

#[test]
fn commands_use_the_practice_database_until_there_is_another() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone\n+447400123456\n");
    scratch.run(["run", "list.csv", "--text", "Hi"]).assert_code(0);
    let campaign = scratch.run(["status", "--format", "json"]).json();
    let campaign = campaign["campaigns"][0]["campaign"].as_str().expect("a name");
    for line in [
        vec!["status"],
        vec!["report"],
        vec!["check"],
        vec!["retry"],
        vec!["retry", "--unknown"],
        vec!["pause", campaign],
        vec!["resume", campaign],
        vec!["schedule", "list", "--quiet"],
        vec!["hooks", "list", "--quiet"],
        vec!["suppress", "list", "--quiet"],
        vec!["purge", "--older-than", "30d", "--dry-run", "--quiet"],
    ] {
        let ran = scratch.run(line).assert_code(0);
        let says = "`smsq-practice.db` is a practice database: no phone gets its messages; `smsq.db` does not exist yet";
        assert!(ran.stderr().contains(says), "{ran}");
    }
    assert!(scratch.run(["status"]).stdout().contains("imported  1"));
    let ran = scratch.run(["resume", campaign]);
    assert!(ran.stderr().contains("already active"), "{ran}");
    let ran = scratch.run(["send"]).assert_code(2);
    assert!(ran.stderr().contains("add `--practice` to `run`, `send` or `serve`"), "{ran}");
    assert!(!scratch.path("smsq.db").exists());
    scratch.write_cellar("http://127.0.0.1:9");
    let ran = scratch.run(["status"]);
    assert_eq!(ran.code(), Some(2), "a real provider has its own database: {ran}");
}

//! Another program at a database: the database's own client, which does as it is told line by line, and
//! may hold a transaction open for as long as it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use url::Url;

use super::databases::Kind;

/// One session; it ends, and what it has not committed is undone, with the test.
pub(crate) struct Client {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    asked: u32,
}

impl Client {
    pub(crate) fn open(kind: Kind, url: &str) -> Self {
        let mut process = command(kind, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the database's client (`tests/run` installs it)");
        Self {
            orders: process.stdin.take(),
            answers: BufReader::new(process.stdout.take().expect("piped")),
            process,
            asked: 0,
        }
    }

    /// Runs statements; returns the lines that they print. A NULL is printed as `NULL`.
    pub(crate) fn run(&mut self, sql: &str) -> Vec<String> {
        self.try_run(sql)
            .unwrap_or_else(|said| panic!("{sql}: {said}"))
    }

    /// Runs statements; returns the lines that they print, or what is wrong with them, which ends the
    /// session.
    pub(crate) fn try_run(&mut self, sql: &str) -> Result<Vec<String>, String> {
        self.asked += 1;
        let end = format!("end of answer {}", self.asked);
        let statements = sql.trim_end_matches(|last: char| last == ';' || last.is_whitespace());
        let orders = format!("{statements};\nSELECT '{end}';\n");
        let stdin = self.orders.as_mut().expect("open until it is dropped");
        // A session that has ended says why below.
        let _ = stdin.write_all(orders.as_bytes());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.answers.read_line(&mut line).expect("an answer");
            let line = line.trim_end_matches('\n');
            if line == end {
                return Ok(lines);
            }
            if read == 0 {
                return Err(self.complaint());
            }
            lines.push(line.to_owned());
        }
    }

    /// Ends the program without its leave, as a crash does.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it is killed");
    }

    fn complaint(&mut self) -> String {
        let mut said = String::new();
        let stderr = self.process.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut said).expect("what it says");
        said.trim().to_owned()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.orders.take());
        // Nobody is left to be told.
        let _ = self.process.wait();
    }
}

/// The client, as it prints rows and nothing else, each line at once, and ends at the first fault.
fn command(kind: Kind, url: &str) -> Command {
    let mut command = Command::new("stdbuf");
    command.arg("-oL");
    match kind {
        Kind::Sqlite => {
            let wait = [".timeout 30000", ".nullvalue NULL"];
            command.args(["sqlite3", "-batch", "-bail"]);
            command.args(wait.into_iter().flat_map(|order| ["-cmd", order]));
            command.arg(url.trim_start_matches("sqlite://"));
        }
        Kind::Mysql => {
            let url = Url::parse(url).expect("a URL");
            let port = url.port().expect("a port").to_string();
            command
                .args(["mariadb", "--no-defaults", "-N", "-B", "--unbuffered"])
                .args(["--default-character-set=utf8mb4", "--protocol=TCP"])
                .args(["-h", url.host_str().expect("a host"), "-P", &port])
                .args(["-u", url.username(), url.path().trim_start_matches('/')])
                .env("MYSQL_PWD", url.password().unwrap_or_default());
        }
        Kind::Postgres => {
            let strict = ["-v", "ON_ERROR_STOP=1", "-P", "null=NULL"];
            command.args(["psql", "-qAtX"]).args(strict).arg(url);
        }
    }
    command
}

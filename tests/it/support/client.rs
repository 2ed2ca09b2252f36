//! Another program at a database: the database's own client, which runs statements one by one, and can hold a
//! transaction open.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use url::Url;

use super::databases::Kind;

/// One session. It ends with the test, and its uncommitted changes are rolled back.
pub(crate) struct Client {
    process: Child,
    stdin: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    runs: u32,
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
            stdin: process.stdin.take(),
            answers: BufReader::new(process.stdout.take().expect("piped")),
            process,
            runs: 0,
        }
    }

    /// Runs statements; returns the lines that they print. A NULL is printed as `NULL`.
    pub(crate) fn run(&mut self, sql: &str) -> Vec<String> {
        self.try_run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs statements; returns the lines that they print, or the error message, after which the session is closed.
    pub(crate) fn try_run(&mut self, sql: &str) -> Result<Vec<String>, String> {
        self.runs += 1;
        let end = format!("end of answer {}", self.runs);
        let statements = sql.trim_end_matches(|last: char| last == ';' || last.is_whitespace());
        let input = format!("{statements};\nSELECT '{end}';\n");
        let stdin = self.stdin.as_mut().expect("open until it is dropped");
        // The error of a closed session is read below.
        let _ = stdin.write_all(input.as_bytes());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.answers.read_line(&mut line).expect("an answer");
            let line = line.trim_end_matches('\n');
            if line == end {
                return Ok(lines);
            }
            if read == 0 {
                return Err(self.error());
            }
            lines.push(line.to_owned());
        }
    }

    /// Kills the program, like a crash.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it is killed");
    }

    fn error(&mut self) -> String {
        let mut message = String::new();
        let stderr = self.process.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut message).expect("an error message");
        message.trim().to_owned()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.process.wait();
    }
}

/// The client: prints only rows, each line at once, and ends at the first error.
fn command(kind: Kind, url: &str) -> Command {
    let mut command = Command::new("stdbuf");
    command.arg("-oL");
    match kind {
        Kind::Sqlite => {
            let wait = [".timeout 30000", ".nullvalue NULL"];
            command.args(["sqlite3", "-batch", "-bail"]);
            command.args(wait.into_iter().flat_map(|command| ["-cmd", command]));
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

//! A database server of one test, which may crash and be frozen.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::databases::Kind;
use super::repository;

/// Ends with the test.
pub(crate) struct Server {
    process: Child,
    answers: BufReader<ChildStdout>,
    /// Without a database.
    pub(crate) url: String,
}

impl Server {
    /// Starts a server of this kind; none for SQLite.
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        let name = match kind {
            Kind::Sqlite => return None,
            Kind::Mysql => "mysql",
            Kind::Postgres => "postgres",
        };
        let mut process = Command::new("bash")
            .args([&repository("tests/it/support/server.bash"), name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash");
        let answers = BufReader::new(process.stdout.take().expect("piped"));
        let mut server = Self { process, answers, url: String::new() };
        server.url = server.answer();
        Some(server)
    }

    pub(crate) fn freeze(&mut self) {
        self.obey("freeze");
    }

    pub(crate) fn thaw(&mut self) {
        self.obey("thaw");
    }

    /// Ends the server without warning.
    pub(crate) fn crash(&mut self) {
        self.obey("crash");
    }

    /// Starts it again after a crash, and waits until it answers.
    pub(crate) fn recover(&mut self) {
        self.obey("start");
    }

    fn obey(&mut self, line: &str) {
        let stdin = self.process.stdin.as_mut().expect("open until it is dropped");
        writeln!(stdin, "{line}").expect("the script reads");
        assert_eq!(self.answer(), line);
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("text");
        assert!(!line.is_empty(), "the script ended");
        line.trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

//! Shared by the tests of the whole program: a scratch folder with a clean environment, the practice gateway as a
//! process, and snapshots of a command's result.

pub(crate) mod client;
#[expect(dead_code, reason = "the tests of the store use it, too")]
pub(crate) mod databases;
pub(crate) mod disk;
pub(crate) mod held_answers;
pub(crate) mod html;
pub(crate) mod practice;
pub(crate) mod proxy;
pub(crate) mod receiver;
pub(crate) mod rewind;
pub(crate) mod running;
pub(crate) mod scripted;
pub(crate) mod server;
pub(crate) mod shell;
pub(crate) mod tables;
pub(crate) mod timed_provider;
pub(crate) mod tls;
pub(crate) mod unstored;
pub(crate) mod waiting;

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use regex::Regex;
use tempfile::TempDir;

/// What differs from run to run, and its replacement in snapshots.
const FILTERS: [(&str, &str); 9] = [
    // Only runs of some seconds show progress, and say what limited them.
    (r"(?m)^(limited by|sending:|importing:) [^\n]*\n", ""),
    (r", in [\w. ]+ \([\d.,]+/(s|min)\)", ""),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \w+", "[DATE]"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:[PORT]"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[DATE]"),
    (r"in \d+(\.\d+)? (ms|s) \([\d.,]+/(s|min)\)", "in [TIME] ([RATE])"),
    (r#""elapsed_ms": \d+"#, r#""elapsed_ms": [TIME]"#),
    (r#""rate": \d+\.\d+"#, r#""rate": [RATE]"#),
    (r"/tmp/[.\w]+/", "[FOLDER]/"),
];

/// A list with two numbers that are reserved for faults, one invalid row and one duplicate.
pub(crate) const LIST: &str = "\
phone,name
+447400123456,Ann
+447400123457,Bob
+1 500 555 2000,Carla
+15005553000,Dan
1.38E10,Eve
+447400123456,Ann again
";

/// Compares the result of a command with an inline snapshot.
macro_rules! snapshot {
    ($ran:expr, @$expected:literal) => {
        insta::assert_snapshot!($crate::support::normalised(&$ran), @$expected);
    };
}
pub(crate) use snapshot;

const PROGRAM: &str = env!("CARGO_BIN_EXE_smsq");

/// A folder to run the program in; removed afterwards.
pub(crate) struct Scratch {
    folder: TempDir,
    /// The URL of the database, if it is not `smsq.db` in the folder.
    database: Option<String>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a scratch folder"), database: None }
    }

    /// A folder whose commands use this database.
    pub(crate) fn at(database: &str) -> Self {
        Self { database: Some(database.to_owned()), ..Self::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.path(name), text).expect("writes a file");
        self
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("reads a file")
    }

    /// The program, with only `PATH` from the environment.
    pub(crate) fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments);
        self.with_environment(command)
    }

    /// The program started by a shell, after a line that changes what a process inherits.
    pub(crate) fn command_after<'a>(
        &self,
        line: &str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{line} && exec \"$0\" \"$@\""), PROGRAM]);
        shell.args(arguments);
        self.with_environment(shell)
    }

    fn with_environment(&self, mut command: Command) -> Command {
        let database = self.database.as_deref();
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("TZ", "UTC")
            .envs(database.map(|url| ("SMSQ__DATABASE__URL", url)))
            .stdin(Stdio::null());
        let authority = self.path("authority.pem");
        if authority.exists() {
            command.env("SSL_CERT_FILE", authority);
        }
        command
    }

    pub(crate) fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Ran {
        self.run_with(arguments, &[])
    }

    pub(crate) fn run_with<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
        environment: &[(&str, &str)],
    ) -> Ran {
        let mut command = self.command(arguments);
        command.envs(environment.iter().copied());
        Ran(command.output().expect("the program starts"))
    }

    /// The configuration of a provider `cellar` that sends to the gateway at `url`.
    pub(crate) fn write_cellar(&self, url: &str) -> &Self {
        let section = format!(
            r#"
[providers.cellar]
kind = "generic"
url = "{url}/messages"
json = {{ to = "{{{{ phone }}}}", text = "{{{{ content }}}}", reference = "{{{{ reference }}}}" }}
message_id = "/id"
error_code = "/error/code"
certain_status = [503]
timeout = "2s"
[providers.cellar.codes]
invalid_recipient = {{ class = "recipient", reason = "not a number that can be reached" }}
opted_out = {{ class = "opted_out", reason = "asked for no more messages" }}
account_suspended = {{ class = "account", reason = "the account is suspended" }}
"#
        );
        self.write("smsq.toml", &section)
    }
}

/// The result of a command: its exit status and output.
pub(crate) struct Ran(Output);

impl Ran {
    pub(crate) fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn assert_code(self, code: i32) -> Self {
        assert_eq!(self.code(), Some(code), "{self}");
        self
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Parses standard output as one JSON object.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.0.stdout).unwrap_or_else(|error| {
            panic!("standard output is not one JSON object: {error}\n{self}")
        })
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code() {
            Some(code) => writeln!(f, "exit {code}")?,
            None => writeln!(f, "{}", self.0.status)?,
        }
        for (name, text) in [("stdout", self.stdout()), ("stderr", self.stderr())] {
            if !text.is_empty() {
                writeln!(f, "----- {name}\n{}", text.trim_end())?;
            }
        }
        Ok(())
    }
}

/// `smsq sandbox` as a process, which ends with the test.
pub(crate) struct Gateway {
    process: Child,
    pub(crate) url: String,
}

impl Gateway {
    /// Starts it as the provider `cellar` of the folder.
    pub(crate) fn start_cellar(scratch: &Scratch, arguments: &[&str]) -> Self {
        let gateway = Self::start(scratch, arguments);
        scratch.write_cellar(&gateway.url);
        gateway
    }

    pub(crate) fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let line = ["sandbox", "--listen", "127.0.0.1:0"];
        let mut process = scratch
            .command(line.into_iter().chain(arguments.iter().copied()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the gateway starts");
        let mut url = String::new();
        let stdout = process.stdout.take().expect("its standard output is piped");
        BufReader::new(stdout).read_line(&mut url).expect("it prints its address");
        Self { process, url: url.trim().to_owned() }
    }
}

impl Gateway {
    /// Waits until the gateway has received a request.
    pub(crate) fn wait_for_a_request(&self) {
        let address = self.url.trim_start_matches("http://");
        loop {
            let mut stream = TcpStream::connect(address).expect("the gateway listens");
            stream
                .write_all(b"GET /stats HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
                .expect("asks");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            let (_, body) = answer.split_once("\r\n\r\n").expect("head and body");
            let stats: serde_json::Value = serde_json::from_str(body).expect("counts");
            if stats["requests"].as_u64() > Some(0) {
                return;
            }
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Replaces what differs from run to run.
pub(crate) fn normalised(text: &impl fmt::Display) -> String {
    let mut text = text.to_string();
    for (pattern, name) in FILTERS {
        let pattern = Regex::new(pattern).expect("the pattern is well formed");
        text = pattern.replace_all(&text, name).into_owned();
    }
    text
}

/// A file of the repository.
pub(crate) fn repository(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join(path).display().to_string()
}

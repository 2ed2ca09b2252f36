//! The program as a running process: signals, its end, and waiting for counts that stay.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use super::waiting::eventually;
use super::{Ran, Scratch};

/// Waits until a count has not changed for `span`.
pub(crate) fn until_unchanged(what: &str, span: Duration, mut count: impl FnMut() -> u64) {
    let mut last = (count(), Instant::now());
    eventually(what, || {
        let now = count();
        if now != last.0 {
            last = (now, Instant::now());
        }
        last.1.elapsed() >= span
    });
}

/// A process that is killed if the test ends first.
pub(crate) struct Running {
    process: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Scratch {
    /// Starts the program and does not wait for it.
    pub(crate) fn start<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Running {
        self.start_with(arguments, Stdio::null())
    }

    /// The same with standard input.
    pub(crate) fn start_with<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
        stdin: impl Into<Stdio>,
    ) -> Running {
        let mut command = self.command(arguments);
        command.stdin(stdin);
        self.start_command(command)
    }

    /// The same with a command that the caller has changed.
    pub(crate) fn start_command(&self, mut command: Command) -> Running {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let stdout = self.path(&format!("{number}.out"));
        let stderr = self.path(&format!("{number}.err"));
        let process = command
            .stdout(File::create(&stdout).expect("a file for standard output"))
            .stderr(File::create(&stderr).expect("a file for standard error"))
            .spawn()
            .expect("the program starts");
        Running { process, stdout, stderr }
    }

    /// Starts the program with a terminal as standard output; returns what reads from the terminal, too.
    pub(crate) fn start_at_terminal<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> (Running, File) {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let stderr = self.path(&format!("{number}.err"));
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("grants");
        unlockpt(&master).expect("unlocks");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let end = rustix::fs::open(&name, flags, Mode::empty()).expect("its other end");
        let process = self
            .command(arguments)
            .stdout(File::from(end))
            .stderr(File::create(&stderr).expect("a file for standard error"))
            .spawn()
            .expect("the program starts");
        let running = Running { process, stdout: PathBuf::from("/dev/null"), stderr };
        (running, File::from(master))
    }

    /// Imports a list into campaign `c`.
    pub(crate) fn import(&self, list: &str) {
        self.write("list.csv", list);
        self.run(["import", "list.csv", "--text", "Hello", "--campaign", "c"]).assert_code(0);
    }

    /// The messages of a campaign that did not arrive, as the report lists them.
    pub(crate) fn failures(&self, campaign: &str) -> Vec<Value> {
        let line = ["report", "--failed", "--campaign", campaign, "--format", "json"];
        let report = self.run(line).json();
        report["failures"].as_array().expect("a list").clone()
    }

    /// The status of one campaign, or of all, after checking that the counts add up and that `smsq check` agrees.
    pub(crate) fn checked_status(&self, campaign: Option<&str>) -> Value {
        let mut line = vec!["status", "--format", "json"];
        line.extend(campaign.into_iter().flat_map(|name| ["--campaign", name]));
        let status = self.run(line).json();
        let count = |key: &str| status[key].as_u64().expect("a count");
        let places = ["queued", "sending", "sent", "failed", "unknown", "cancelled"];
        let sum: u64 = places.into_iter().map(count).sum();
        assert_eq!(sum, count("imported"), "{status}");
        self.run(["check", "--offline"]).assert_code(0);
        status
    }
}

impl Running {
    /// Waits until the condition holds; returns false if the process has ended and it does not hold.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut() -> bool) -> bool {
        let mut held = false;
        eventually(what, || {
            let has_ended = self.has_ended();
            held = holds();
            held || has_ended
        });
        held
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().expect("a status").is_some()
    }

    /// Its exit status, if it has ended and no signal ended it.
    pub(crate) fn code(&mut self) -> Option<i32> {
        let status = self.process.try_wait().expect("a status");
        status.and_then(|status| status.code())
    }

    /// Does nothing if the process has ended.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if !self.has_ended() {
            kill_process(Pid::from_child(&self.process), signal).expect("the signal is sent");
        }
    }

    /// Sends SIGSTOP, and waits until none of its threads runs.
    pub(crate) fn freeze(&mut self) {
        self.signal(Signal::STOP);
        let stopped_or_ended =
            WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let pid = WaitId::Pid(Pid::from_child(&self.process));
        // It may have ended and been waited for.
        let _ = waitid(pid, stopped_or_ended);
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("the process is killed");
        self.process.wait().expect("a status");
    }

    /// Waits for the first line of its standard output; fails if the process ends first.
    pub(crate) fn first_line(&mut self) -> String {
        let stdout = self.stdout.clone();
        let printed = || std::fs::read_to_string(&stdout).unwrap_or_default();
        let has_printed = self.until("it has printed a line", || printed().contains('\n'));
        let errors = std::fs::read_to_string(&self.stderr).unwrap_or_default();
        assert!(has_printed, "it ended before it printed a line\n{errors}");
        printed().lines().next().unwrap_or_default().to_owned()
    }

    /// Waits until its standard error satisfies `enough`; fails if the process ends first.
    pub(crate) fn until_printed(&mut self, what: &str, mut enough: impl FnMut(&str) -> bool) {
        let stderr = self.stderr.clone();
        let said = || std::fs::read_to_string(&stderr).unwrap_or_default();
        let is_enough = self.until(what, || enough(&said()));
        assert!(is_enough, "it ended before: {what}\n{}", said());
    }

    /// Waits until it ends.
    pub(crate) fn ended(mut self) -> Ran {
        self.until("the program ends", || false);
        let status = self.process.wait().expect("a status");
        Ran(Output {
            status,
            stdout: std::fs::read(&self.stdout).expect("its standard output"),
            stderr: std::fs::read(&self.stderr).expect("its standard error"),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

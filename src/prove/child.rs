//! A process that a round has started: this program with other arguments.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// How often it is looked whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Killed when it is dropped.
pub(super) struct Process {
    /// Its number and its arguments.
    pub(super) name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    pub(super) was_killed: bool,
    /// When it continues, while it is stopped.
    pub(super) stopped_until: Option<Instant>,
    /// A statement that finds the messages which it had claimed when it was stopped, and which another worker sends now.
    pub(super) taken_over: Option<String>,
}

/// How a process ended.
#[derive(Debug)]
pub(super) struct Ending {
    /// `None` if a signal killed it.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Where processes run, and with which environment.
#[derive(Clone)]
pub(super) struct ChildEnvironment {
    pub(super) folder: PathBuf,
    /// The URL of the database, which has no password unless the user has written one there.
    pub(super) database: String,
}

impl ChildEnvironment {
    /// Starts this program, with its output in files of the folder. Settings of the user's environment do not reach it,
    /// except the password of the database.
    pub(super) fn start(&self, arguments: &[String]) -> io::Result<Process> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let output = |end: &str| self.folder.join(format!("{number}.{end}"));
        let (stdout, stderr) = (output("out"), output("err"));
        let mut command = Command::new(std::env::current_exe()?);
        let is_setting = |name: &OsStr| name.to_string_lossy().starts_with("SMSQ_");
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_setting(name)) {
            if !name.to_string_lossy().starts_with("SMSQ__DATABASE__PASS") && name != BROKEN {
                command.env_remove(name);
            }
        }
        let child = command
            .args(arguments)
            .current_dir(&self.folder)
            .env("HOME", &self.folder)
            .env("XDG_STATE_HOME", &self.folder)
            .env("SMSQ__DATABASE__URL", &self.database)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .spawn()?;
        Ok(Process {
            name: format!("{} `smsq {}`", child.id(), arguments.join(" ")),
            child,
            stdout,
            stderr,
            was_killed: false,
            stopped_until: None,
            taken_over: None,
        })
    }
}

/// The variable that selects a fault of a program that was built to have one.
const BROKEN: &str = "SMSQ_BROKEN";

impl Process {
    /// Whether it is stopped until another worker sends its messages.
    pub(super) fn awaits_takeover(&self) -> bool {
        self.stopped_until.is_some() && self.taken_over.is_some()
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Does nothing if the process has ended.
    pub(super) fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if !self.has_ended()? {
            kill_process(Pid::from_child(&self.child), signal)?;
        }
        Ok(())
    }

    /// Whether it handles SIGTERM, so that the signal does not just end it.
    pub(super) fn handles_signals(&self) -> bool {
        const SIGTERM: u64 = 1 << (15 - 1);
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & SIGTERM != 0)
    }

    /// Sends SIGSTOP, and returns when none of its threads runs.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let stopped_or_ended =
            WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // It may have ended, and have been waited for.
        let _ = waitid(WaitId::Pid(Pid::from_child(&self.child)), stopped_or_ended);
        Ok(())
    }

    /// What a process that has ended returned.
    pub(super) fn ending(&mut self) -> io::Result<Ending> {
        let status: ExitStatus = self.child.wait()?;
        let text = |path: &Path| -> io::Result<String> {
            Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
        };
        Ok(Ending { code: status.code(), stdout: text(&self.stdout)?, stderr: text(&self.stderr)? })
    }

    /// Waits until it ends; `None` if it takes longer than `patience`.
    pub(super) async fn ended(&mut self, patience: Duration) -> io::Result<Option<Ending>> {
        let deadline = Instant::now() + patience;
        while !self.has_ended()? {
            if Instant::now() > deadline {
                return Ok(None);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.ending().map(Some)
    }

    /// Waits for the first line of its output; `None` if it ends first.
    pub(super) async fn first_line(&mut self) -> io::Result<Option<String>> {
        loop {
            let has_ended = self.has_ended()?;
            let printed = fs::read_to_string(&self.stdout)?;
            if let Some((line, _)) = printed.split_once('\n') {
                return Ok(Some(line.to_owned()));
            }
            if has_ended {
                return Ok(None);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! A small disk that can be filled: a tmpfs in its own mount namespace, which ends with the test, and a shell that
//! runs commands in it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use super::{Ran, Scratch};

/// Which of these commands may mount depends on the system.
const WAYS: [&[&str]; 3] = [
    &["unshare", "--map-root-user", "--mount"],
    &["unshare", "--mount"],
    &["sudo", "-n", "unshare", "--mount"],
];

/// Mounted as `disk` in the scratch folder; ends with the test.
pub(crate) struct Disk<'a> {
    scratch: &'a Scratch,
    shell: Child,
    answers: BufReader<ChildStdout>,
}

impl<'a> Disk<'a> {
    /// `None` where mounting is not permitted; fails where `CI` is set.
    pub(crate) fn mount(scratch: &'a Scratch, size: &str) -> Option<Self> {
        std::fs::create_dir(scratch.path("disk")).expect("a folder");
        let mount = format!("mount -t tmpfs -o size={size} tmpfs disk");
        for way in WAYS {
            let Some(mut disk) = Self::enter(scratch, way) else {
                continue;
            };
            if disk.try_run(&mount).is_some_and(|ran| ran.code() == Some(0)) {
                return Some(disk);
            }
        }
        assert!(std::env::var_os("CI").is_none(), "cannot mount a small disk");
        // The test runner captures what `eprintln` prints.
        let line = "skipped: the test needs a small disk, and mounting one is not permitted";
        writeln!(std::io::stderr(), "{line}").expect("standard error is open");
        None
    }

    fn enter(scratch: &'a Scratch, way: &[&str]) -> Option<Self> {
        let (program, arguments) = way.split_first()?;
        let mut shell = Command::new(program)
            .args(arguments)
            .arg("sh")
            .current_dir(scratch.path("."))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", scratch.path("."))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let answers = BufReader::new(shell.stdout.take()?);
        Some(Self { scratch, shell, answers })
    }

    /// Runs a command line of the shell in the scratch folder.
    pub(crate) fn run(&mut self, line: &str) -> Ran {
        self.try_run(line).expect("the shell listens")
    }

    /// Runs the program with its database on the small disk.
    pub(crate) fn smsq(&mut self, arguments: &str) -> Ran {
        self.run(&smsq(arguments))
    }

    /// Starts the program and does not wait for it.
    pub(crate) fn start(&mut self, arguments: &str) {
        let program = smsq(arguments);
        self.run(&format!(
            "{{ {program}; echo $? >started.code; }} >started.out 2>started.err & started=$!"
        ));
    }

    /// What the started program has printed to standard error so far.
    pub(crate) fn said(&self) -> String {
        self.scratch.read("started.err")
    }

    /// Waits until the started program ends; returns its exit code.
    pub(crate) fn ended(&mut self) -> String {
        self.run("wait");
        self.scratch.read("started.code").trim().to_owned()
    }

    /// Leaves no free space.
    pub(crate) fn fill(&mut self) {
        let ran = self.run("dd if=/dev/zero of=disk/filler bs=1k");
        assert_ne!(ran.code(), Some(0), "{ran}");
    }

    pub(crate) fn free(&mut self) {
        self.run("rm disk/filler");
    }

    fn try_run(&mut self, line: &str) -> Option<Ran> {
        let line = format!("{{ {line}\n}} >disk.out 2>disk.err; echo $?\n");
        let stdin = self.shell.stdin.as_mut()?;
        stdin.write_all(line.as_bytes()).ok()?;
        let mut code = String::new();
        self.answers.read_line(&mut code).ok()?;
        let code: i32 = code.trim().parse().ok()?;
        let read = |name| std::fs::read(self.scratch.path(name)).unwrap_or_default();
        Some(Ran(Output {
            status: ExitStatus::from_raw(code << 8),
            stdout: read("disk.out"),
            stderr: read("disk.err"),
        }))
    }
}

fn smsq(arguments: &str) -> String {
    let program = env!("CARGO_BIN_EXE_smsq");
    format!("'{program}' --database sqlite://disk/smsq.db {arguments}")
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // Programs in the background must not outlive the shell.
        let line = "test -z \"$started\" || kill -9 $(ps -o pid= --ppid $started) $started";
        let _ = self.try_run(line);
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

//! Starts the program of section `[notify]` for an event, without a shell.

use std::ffi::OsStr;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use smsq_message::text::printable_line;
use tokio::sync::oneshot;

use super::delivery::ReceiverAnswer;

/// How long the program may take.
const TIMEOUT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// More of its output is not logged.
const MAX_OUTPUT: u64 = 4 << 10;

/// The variables that the program inherits, and those whose names begin with `LC_`.
const INHERITED: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"];

/// A program and its arguments.
#[derive(Clone)]
pub(super) struct NotifyProgram {
    program: String,
    arguments: Vec<String>,
}

impl NotifyProgram {
    /// `None` without a program.
    pub(super) fn new(command: &[String]) -> Option<Self> {
        let (program, arguments) = command.split_first()?;
        Some(Self { program: program.clone(), arguments: arguments.to_vec() })
    }

    /// Runs it with the event as its standard input. It has succeeded if its exit status is 0.
    pub(super) async fn run(&self, body: &str) -> ReceiverAnswer {
        let (program, body) = (self.clone(), body.to_owned());
        let (result, ran) = oneshot::channel();
        // Not a thread of the runtime, for which the end of the process would wait.
        std::thread::spawn(move || result.send(program.run_until(&body, TIMEOUT)));
        let ran = ran.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let error = match ran {
            Ok(Some(status)) if status.success() => {
                let summary = status.to_string();
                return ReceiverAnswer::Delivered { summary };
            }
            Ok(Some(status)) => format!("the program ended with {status}"),
            Ok(None) => format!("the program did not end within {TIMEOUT:?}"),
            Err(error) => format!("cannot start the program: {error}"),
        };
        tracing::warn!(%error, "an event could not be passed to the program of [notify]");
        ReceiverAnswer::Failed { error, retry_after: None }
    }

    /// `None`: it did not end in time, and was killed.
    fn run_until(&self, body: &str, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + timeout;
        let mut input = tempfile::tempfile()?;
        input.write_all(body.as_bytes())?;
        input.write_all(b"\n")?;
        input.rewind()?;
        let output = tempfile::tempfile()?;
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| is_passed(name)))
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output.try_clone()?))
            .spawn()?;
        let ended = loop {
            match child.try_wait()? {
                Some(status) => break Some(status),
                None if Instant::now() >= deadline => {
                    child.kill()?;
                    child.wait()?;
                    break None;
                }
                None => std::thread::sleep(LOOK_EVERY),
            }
        };
        log(output);
        Ok(ended)
    }
}

/// Whether the program inherits a variable. Every other one may be a secret of ours.
fn is_passed(name: &OsStr) -> bool {
    let name = name.to_str().unwrap_or_default();
    INHERITED.contains(&name) || name.starts_with("LC_")
}

fn log(mut output: std::fs::File) {
    let mut text = Vec::new();
    if output.rewind().is_ok() && output.take(MAX_OUTPUT).read_to_end(&mut text).is_ok() {
        for line in String::from_utf8_lossy(&text).lines() {
            let line = printable_line(line);
            tracing::info!(%line, "the program of [notify] printed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> NotifyProgram {
        let command = ["sh", "-c", script].map(str::to_owned);
        NotifyProgram::new(&command).expect("a program")
    }

    #[test]
    fn program_gets_the_event_and_is_killed_when_it_is_late() {
        let succeeded = |program: &NotifyProgram, timeout| {
            let ended = program.run_until("{\"a\":1}", timeout).expect("it starts");
            ended.map(|status| status.success())
        };
        let long = Duration::from_secs(60);
        let reads = shell("read line && test \"$line\" = '{\"a\":1}'");
        assert_eq!(succeeded(&reads, long), Some(true));
        assert_eq!(succeeded(&shell("exit 3"), long), Some(false));
        // Cargo sets the one, as a user may set a secret.
        let inherits = shell("test -n \"$PATH\" && test -z \"$CARGO_MANIFEST_DIR\"");
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert_eq!(succeeded(&inherits, long), Some(true));
        let sleeps = shell("exec sleep 600");
        assert_eq!(succeeded(&sleeps, Duration::from_millis(50)), None);
        let missing = NotifyProgram::new(&["/nowhere/at-all".to_owned()]).expect("a program");
        assert!(missing.run_until("", long).is_err());
        assert!(NotifyProgram::new(&[]).is_none());
    }
}

//! smsq as a service: what it reports to systemd, the units, the manual pages, and the file of the container image.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use smsq_sandbox::SandboxConfig;

use crate::support::practice::{Practice, list, with_latency};
use crate::support::waiting::eventually;
use crate::support::{Scratch, repository};

const UNITS: [&str; 3] = ["smsq.service", "smsq-send@.service", "smsq-serve.service"];
const DOCKERFILE: &str = "docs/docker/Dockerfile";

fn text_of(path: &str) -> String {
    fs::read_to_string(repository(path)).expect("a file of the repository")
}

/// The socket of a service manager.
pub(crate) struct NotifySocket(UnixDatagram);

impl NotifySocket {
    pub(crate) fn bind(scratch: &Scratch) -> Self {
        Self::bind_as(scratch, "notify")
    }

    pub(crate) fn bind_as(scratch: &Scratch, name: &str) -> Self {
        let socket = UnixDatagram::bind(scratch.path(name)).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        Self(socket)
    }

    /// Adds the lines that have come to `lines`.
    pub(crate) fn read(&self, lines: &mut Vec<String>) {
        let mut buffer = [0; 4_096];
        while let Ok(length) = self.0.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]);
            lines.extend(text.lines().map(str::to_owned));
        }
    }
}

#[test]
fn worker_reports_to_its_service_manager() {
    let gateway = Practice::start(with_latency(20));
    let scratch = gateway.with_references("timeout = \"3s\"\nrate = \"20/s\"").scratch();
    let toml = scratch.read("smsq.toml");
    let settings = "default_provider = \"practice\"\n";
    let lease = "[sender]\nlease = \"5s\"\n";
    scratch.write("smsq.toml", &format!("{settings}{lease}{toml}"));
    scratch.import(&list(40));
    let socket = NotifySocket::bind(&scratch);
    let mut process = scratch
        .command(["send", "--follow", "--quiet"])
        .env("NOTIFY_SOCKET", scratch.path("notify"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut lines = Vec::new();
    eventually("the lease was renewed, and all is sent", || {
        assert!(process.try_wait().expect("a status").is_none(), "it ended");
        socket.read(&mut lines);
        let alive = lines.iter().filter(|line| *line == "WATCHDOG=1").count();
        let is_sent = |line: &String| line.starts_with("STATUS=sent 40, ");
        alive >= 3 && lines.iter().any(is_sent)
    });
    assert_eq!(lines.iter().filter(|line| *line == "READY=1").count(), 1);
    let of = |line: &str| lines.iter().position(|one| one == line);
    assert!(of("READY=1") < of("WATCHDOG=1"), "{lines:?}");
    assert_eq!(of("STOPPING=1"), None);
    kill_process(Pid::from_child(&process), Signal::TERM).expect("the signal is sent");
    let status = process.wait().expect("a status");
    assert_eq!(status.code(), Some(143));
    socket.read(&mut lines);
    assert_eq!(lines.iter().filter(|line| *line == "STOPPING=1").count(), 1);
}

#[test]
fn worker_with_nothing_to_send_is_ready_before_it_ends() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("").imported(&list(1));
    for _ in 0..2 {
        let socket = NotifySocket::bind(&scratch);
        let mut command = scratch.command(["send", "--quiet"]);
        let output = command.env("NOTIFY_SOCKET", scratch.path("notify")).output();
        assert!(output.expect("the program runs").status.success());
        let mut lines = Vec::new();
        socket.read(&mut lines);
        let reports = lines.iter().filter(|line| line.ends_with("=1") && !line.starts_with('W'));
        let reports: Vec<&String> = reports.collect();
        assert_eq!(reports, ["READY=1", "STOPPING=1"]);
        fs::remove_file(scratch.path("notify")).expect("the socket is removed");
    }
}

/// The values of a key of a unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let lines = unit.lines();
    let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.collect()
}

#[test]
fn units_have_the_settings_that_the_program_needs() {
    for name in UNITS {
        let unit = text_of(&format!("docs/systemd/{name}"));
        for (key, value) in [
            ("Type", "notify"),
            ("Restart", "on-failure"),
            ("SuccessExitStatus", "130 143"),
            ("NoNewPrivileges", "yes"),
            ("ProtectSystem", "strict"),
            ("StateDirectory", "smsq"),
        ] {
            assert_eq!(values(&unit, key), [value], "{name}: {key}");
        }
        for line in unit.lines() {
            let is_plain = line.is_empty() || line.starts_with(['#', '[']) || line.contains('=');
            assert!(is_plain, "{name}: {line}");
        }
        // One that could not run starts again: its database may be back.
        for status in values(&unit, "RestartPreventExitStatus") {
            assert!(!status.contains('2'), "{name}: {status}");
        }
        // A worker must see the processes of other workers.
        for key in ["ProtectProc", "ProcSubset"] {
            assert_eq!(values(&unit, key), Vec::<&str>::new(), "{name}: {key}");
        }
    }
}

#[test]
fn systemd_accepts_the_units() {
    let has_systemd = Command::new("systemd-analyze").arg("--version").output();
    if !has_systemd.is_ok_and(|output| output.status.success()) {
        return;
    }
    let scratch = Scratch::new();
    let mut files = Vec::new();
    for name in UNITS {
        let unit = text_of(&format!("docs/systemd/{name}"));
        // The program where it is now, and a name for the instance.
        let unit = unit.replace("/usr/local/bin/smsq", env!("CARGO_BIN_EXE_smsq"));
        let name = name.replace('@', "@main");
        scratch.write(&name, &unit);
        files.push(scratch.path(&name));
    }
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(&files)
        .output()
        .expect("systemd-analyze runs");
    let complaints = String::from_utf8_lossy(&output.stderr);
    // About units of this machine, too.
    let own: Vec<&str> = complaints.lines().filter(|line| line.contains("smsq")).collect();
    assert_eq!(own, Vec::<&str>::new());
    assert!(output.status.success(), "{complaints}");
}

/// The command line of a unit, without the program, is one that the program has.
#[test]
fn units_start_commands_that_exist() {
    for name in UNITS {
        let unit = text_of(&format!("docs/systemd/{name}"));
        let [command] = values(&unit, "ExecStart")[..] else {
            panic!("one command");
        };
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "/usr/local/bin/smsq");
        let scratch = Scratch::new();
        let ran = scratch.run(words[1..].iter().copied().chain(["--help"]));
        assert_eq!(ran.code(), Some(0), "{name}: {ran}");
    }
}

/// The names of all commands, such as `smsq-campaign`, from the help of the program.
fn commands(scratch: &Scratch, path: &[&str], found: &mut BTreeSet<String>) {
    let name = ["smsq"].iter().chain(path).copied().collect::<Vec<_>>();
    found.insert(name.join("-"));
    let help = scratch.run(path.iter().copied().chain(["--help"])).stdout();
    let below = help.split_once("Commands:\n").map(|(_, below)| below);
    let lines = below.into_iter().flat_map(str::lines);
    for line in lines.take_while(|line| !line.is_empty()) {
        let indented = line.strip_prefix("  ").filter(|line| !line.starts_with(' '));
        let word = indented.and_then(|line| line.split(' ').next());
        if let Some(word) = word.filter(|word| *word != "help") {
            let path: Vec<&str> = path.iter().copied().chain([word]).collect();
            commands(scratch, &path, found);
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let scratch = Scratch::new();
    scratch.run(["man", "--output", "man/man1"]).assert_code(0);
    let mut expected = BTreeSet::new();
    commands(&scratch, &[], &mut expected);
    assert!(expected.contains("smsq-send") && expected.contains("smsq-suppress-add"));
    let files = fs::read_dir(scratch.path("man/man1")).expect("a folder");
    let names = files.map(|file| file.expect("a file").file_name());
    let names: BTreeSet<String> = names.map(|name| name.into_string().expect("a name")).collect();
    let expected: BTreeSet<String> = expected.iter().map(|name| format!("{name}.1")).collect();
    assert_eq!(names, expected);
    let page = scratch.read("man/man1/smsq-send.1");
    for part in [".TH smsq-send 1", "\\-\\-metrics\\-file", "smsq send \\-\\-follow"] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let printed = scratch.run(["man"]).stdout();
    for name in &names {
        let page = scratch.read(&format!("man/man1/{name}"));
        assert!(printed.contains(page.trim()), "{name}");
    }
}

#[test]
fn manual_pages_are_formatted_without_warnings() {
    let has_groff = Command::new("groff").arg("--version").output();
    if !has_groff.is_ok_and(|output| output.status.success()) {
        return;
    }
    let scratch = Scratch::new();
    scratch.run(["man", "--output", "man"]);
    for file in fs::read_dir(scratch.path("man")).expect("a folder") {
        let path = file.expect("a file").path();
        let output = Command::new("groff")
            .args(["-Kutf8", "-man", "-Tutf8", "-ww", "-z"])
            .arg(&path)
            .output()
            .expect("groff runs");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert_eq!(complaints, "", "{}", path.display());
    }
}

#[test]
fn image_is_built_from_files_that_exist_as_the_readme_says() {
    let file = text_of(DOCKERFILE);
    let mut copied = BTreeSet::new();
    let mut stages = BTreeSet::new();
    let mut user = None;
    let joined = file.replace("\\\n", " ");
    for line in joined.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["COPY", ref rest @ ..] => match rest[0].strip_prefix("--from=") {
                Some(stage) => assert!(stages.contains(stage), "{line}"),
                None => copied.extend(rest[..rest.len() - 1].iter().copied()),
            },
            ["FROM", image, "AS", stage] => {
                assert!(image.contains(':'), "{line}");
                stages.insert(stage);
            }
            ["FROM", _] => user = None,
            ["USER", name] => user = Some(name),
            _ => {}
        }
    }
    for path in &copied {
        assert!(Path::new(&repository(path)).exists(), "{path}");
    }
    // What the manifest and the sources name.
    for path in ["Cargo.toml", "Cargo.lock", "src", "migrations", "config", "templates"] {
        assert!(copied.contains(path), "{path}");
    }
    let manifest: toml::Table = text_of("Cargo.toml").parse().expect("TOML");
    let targets = ["bench", "test", "bin"].iter().filter_map(|kind| manifest.get(*kind));
    for target in targets.flat_map(|targets| targets.as_array().expect("a list")) {
        let path = target.get("path").map_or("benches", |path| path.as_str().expect("a path"));
        let folder = path.split('/').next().expect("a folder");
        assert!(copied.contains(folder), "{folder}");
    }
    assert_eq!(user, Some("10001"), "not root");
    let command = joined.lines().find_map(|line| line.strip_prefix("RUN cargo "));
    let command = format!("cargo {}", command.expect("a build"));
    assert!(text_of("README.md").contains(&command), "{command}");
    assert!(file.contains("ENTRYPOINT [\"smsq\"]"));
}

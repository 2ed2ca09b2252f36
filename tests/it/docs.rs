//! Checks README.md and docs/ against the program and the repository.
//!
//! Each page is run from top to bottom in a scratch directory. A fenced block with `title="FILE"` is written
//! to that file. Each `$ command` of a `console` block runs in bash, and the lines below it must be what it
//! prints. `SMSQ_DOCS=update` writes what the commands print into the pages instead.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use regex::Regex;
use rustix::process::{Pid, Signal, kill_process};
use smsq_prove::proxy::carry;

use crate::support::tables::wrong_table;
use crate::support::waiting::{PATIENCE, eventually};
use crate::support::{Scratch, repository};

/// The address that the pages give the practice gateway; a test uses a free port instead.
const GATEWAY: &str = "127.0.0.1:8025";

/// How lines begin that only long runs print: progress every few seconds, and what limited a run.
const OF_LONG_RUNS: [&str; 3] = ["sending: ", "importing: ", "limited by "];

/// What differs from run to run, and what replaces it on both sides of a comparison.
const VARIABLE: [(&str, &str); 6] = [
    (
        r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC) to \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC(, in (\d+(\.\d+)? m?s|\d+m( \d+s)?) \([\d,]+(\.\d+)?/(s|min)\))?",
        "[TIME] to [TIME]",
    ),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "[TIME]"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[TIME]"),
    (r"in (\d+(\.\d+)? m?s|\d+m( \d+s)?)( \([\d,]+(\.\d+)?/(s|min)\))?", "in [DURATION]"),
    (r#""(elapsed_ms|rate|took_ms)": [\d.]+"#, "\"$1\": [NUMBER]"),
    // A request that is delayed on its way may arrive in the second of the next.
    (r#""max_in_any_second":[12]"#, "[1 OR 2 PER SECOND]"),
];

/// A fenced block: the lines between its fences.
struct Block<'a> {
    language: &'a str,
    title: Option<&'a str>,
    /// The line before the opening fence.
    above: &'a str,
    /// The number of its first line, counted from 1.
    line: usize,
    lines: Vec<&'a str>,
}

/// A command of a `console` block, and the lines below it.
struct Step {
    command: String,
    output: Vec<String>,
    /// The command's last line, counted from 1 in the page.
    line: usize,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let title = Regex::new(r#"title="([^"]+)""#).expect("a pattern");
    let mut blocks = Vec::new();
    let mut above = "";
    let mut open: Option<Block<'_>> = None;
    for (index, line) in page.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let name = title.captures(info).and_then(|found| found.get(1));
                open = Some(Block {
                    language: info.split_whitespace().next().unwrap_or_default(),
                    title: name.map(|name| name.as_str()),
                    above,
                    line: index + 2,
                    lines: Vec::new(),
                });
            }
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => block.lines.push(line),
            (None, None) => above = line,
        }
    }
    assert!(open.is_none(), "a block without an end");
    blocks
}

fn steps(block: &Block<'_>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut continues = false;
    for (index, line) in block.lines.iter().enumerate() {
        let number = block.line + index;
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), output: Vec::new(), line: number });
        } else {
            let step = steps.last_mut().unwrap_or_else(|| {
                panic!("line {number}: a console block begins with `$ COMMAND`")
            });
            if continues {
                step.command.push('\n');
                step.command.push_str(line);
                step.line = number;
            } else {
                step.output.push((*line).to_owned());
            }
        }
        continues = (continues || line.starts_with("$ ")) && line.ends_with('\\');
    }
    steps
}

/// Replaces what differs from run to run.
fn comparable(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    for (pattern, name) in VARIABLE {
        let pattern = Regex::new(pattern).expect("a pattern");
        text = pattern.replace_all(&text, name).into_owned();
    }
    text.trim_end().to_owned()
}

/// The practice gateway of a page, as a process of its own behind a relay.
struct Gateway {
    process: Child,
    relay: Relay,
    /// The lines that it printed when it started.
    output: Vec<String>,
}

impl Gateway {
    /// Runs the command, which begins with `smsq sandbox`, on a free port.
    fn start(mut command: Command, output: &Path) -> Self {
        let file = File::create(output).expect("a file");
        let process = command
            .stderr(file.try_clone().expect("the file a second time"))
            .stdout(file)
            .spawn()
            .expect("the gateway starts");
        let read = || fs::read_to_string(output).unwrap_or_default();
        eventually("the gateway listens", || read().matches('\n').count() >= 2);
        let text = read();
        let first = text.lines().next().unwrap_or_default();
        Self {
            process,
            relay: Relay::start(first.trim_start_matches("http://")),
            output: text.lines().map(str::to_owned).collect(),
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

/// Passes requests on to a gateway, and can hold one back until something else is done.
struct Relay {
    gateway: String,
    address: String,
    /// How many more requests pass before one is held back; `None`: all pass.
    passing: Arc<Mutex<Option<u64>>>,
    held: Receiver<()>,
    go_on: SyncSender<()>,
}

impl Relay {
    /// Listens until the tests end.
    fn start(gateway: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let passing: Arc<Mutex<Option<u64>>> = Arc::default();
        let (holding, held) = sync_channel(1);
        let (go_on, may_go_on) = sync_channel(1);
        let may_go_on = Arc::new(Mutex::new(may_go_on));
        let (left, target) = (Arc::clone(&passing), gateway.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                // The page is over.
                let Ok(server) = TcpStream::connect(&target) else {
                    return;
                };
                carry(&server, &client, |bytes: &[u8]| bytes.len()).expect("handles");
                let (left, holding) = (Arc::clone(&left), holding.clone());
                let may_go_on = Arc::clone(&may_go_on);
                let passes = move |bytes: &[u8]| {
                    if bytes.starts_with(b"POST ") && is_held(&mut left.lock().expect("no panic")) {
                        let waiting = may_go_on.lock().expect("no panic");
                        if holding.send(()).is_err() || waiting.recv().is_err() {
                            return 0;
                        }
                    }
                    bytes.len()
                };
                carry(&client, &server, passes).expect("handles");
            }
        });
        Self { gateway: gateway.to_owned(), address, passing, held, go_on }
    }

    /// Holds the request with this number back, counted from 1.
    fn hold(&self, number: u64) {
        *self.passing.lock().expect("no panic") = Some(number - 1);
    }

    /// Waits for the request that is held back, and lets it go on after `then`.
    fn at_held_request(&self, then: impl FnOnce()) {
        self.held.recv_timeout(PATIENCE).expect("enough requests");
        then();
        self.go_on.send(()).expect("a request waits");
    }
}

/// Whether the next request is the one that is held back.
fn is_held(passing: &mut Option<u64>) -> bool {
    match passing {
        Some(0) => passing.take().is_some(),
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

/// The shell session of one page.
struct Session {
    scratch: Scratch,
    gateway: Option<Gateway>,
    exported: Vec<(String, String)>,
    /// The exit status of the command before.
    status: i32,
}

impl Session {
    fn new(page: &str) -> Self {
        let mut session =
            Self { scratch: Scratch::new(), gateway: None, exported: Vec::new(), status: 0 };
        for name in ["tests", "templates"] {
            symlink(repository(name), session.scratch.path(name)).expect("a link");
        }
        let sandbox = blocks(page)
            .iter()
            .filter(|block| block.language == "console")
            .flat_map(steps)
            .find(|step| step.command.starts_with("smsq sandbox"));
        // The other commands and files of the page need its port, also those above it.
        if let Some(step) = sandbox {
            for block in blocks(page) {
                let used = |name: &str| step.command.contains(name);
                if block.title.is_some_and(used) {
                    session.save(&block);
                }
            }
            let command = session.shell(&format!("exec {} --listen 127.0.0.1:0", step.command));
            let output = session.scratch.path(".gateway");
            session.gateway = Some(Gateway::start(command, &output));
        }
        session
    }

    /// Replaces the gateway's address in the page by the real one.
    fn to_real(&self, text: &str) -> String {
        match &self.gateway {
            Some(gateway) => text.replace(GATEWAY, &gateway.relay.address),
            None => text.to_owned(),
        }
    }

    /// Replaces the gateway's real address by that in the page.
    fn to_page(&self, text: &str) -> String {
        match &self.gateway {
            Some(gateway) => text
                .replace(&gateway.relay.address, GATEWAY)
                .replace(&gateway.relay.gateway, GATEWAY),
            None => text.to_owned(),
        }
    }

    /// Writes a block with a title to its file.
    fn save(&self, block: &Block<'_>) {
        if let Some(name) = block.title {
            let text = self.to_real(&format!("{}\n", block.lines.join("\n")));
            self.scratch.write(name, &text);
        }
    }

    fn shell(&self, script: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_smsq")).parent();
        let programs = programs.expect("a directory").display();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command
            .args(["-c", script])
            .current_dir(self.scratch.path("."))
            .env_clear()
            .env("PATH", format!("{programs}:{path}"))
            .env("HOME", self.scratch.path("."))
            .env("TZ", "UTC")
            .env("LC_ALL", "C.UTF-8")
            .envs(self.exported.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command; it gets SIGINT during the request with the number `interrupt_at`.
    fn run(&mut self, step: &Step, interrupt_at: Option<u64>) -> Vec<String> {
        if step.command.starts_with("smsq sandbox") {
            let gateway = self.gateway.as_ref().expect("it was started");
            let lines = gateway.output.iter();
            return lines.map(|line| self.to_page(line)).collect();
        }
        if let Some((name, value)) =
            step.command.strip_prefix("export ").and_then(|assignment| assignment.split_once('='))
        {
            self.exported.push((name.to_owned(), value.to_owned()));
            return Vec::new();
        }
        let command = self.to_real(&step.command).replace("cargo run --release -- ", "smsq ");
        let exec = if interrupt_at.is_some() { "exec " } else { "" };
        let script = format!("exec 2>&1; (exit {}); {exec}{command}", self.status);
        let file = self.scratch.path(".output");
        let relay = self.gateway.as_ref().map(|gateway| &gateway.relay);
        let interrupt = relay.zip(interrupt_at);
        if let Some((relay, number)) = interrupt {
            relay.hold(number);
        }
        let mut shell = self.shell(&script);
        if interrupt.is_some() {
            // The order of requests that run at the same time is not certain.
            shell.env("SMSQ__SENDER__CONCURRENCY", "1");
        }
        let mut process =
            shell.stdout(File::create(&file).expect("a file")).spawn().expect("bash starts");
        if let Some((relay, _)) = interrupt {
            relay.at_held_request(|| {
                kill_process(Pid::from_child(&process), Signal::INT).expect("the signal is sent");
            });
        }
        let status = process.wait().expect("a status");
        self.status = status.code().unwrap_or(-1);
        let text = self.to_page(&fs::read_to_string(&file).expect("UTF-8"));
        // A terminal shows progress as a bar instead, and removes it.
        let of_long_run = |line: &str| OF_LONG_RUNS.iter().any(|start| line.starts_with(start));
        let lines = text.trim_end().lines();
        let mut lines: Vec<String> =
            lines.filter(|line| !of_long_run(line)).map(str::to_owned).collect();
        if let (Some(first), Some(_)) = (lines.first_mut(), interrupt_at) {
            first.insert_str(0, "^C");
        }
        lines
    }
}

/// Runs a page. Returns the differences, and the page with the real output.
fn check_page(page: &str) -> (String, String) {
    let interrupt = Regex::new(r"^<!-- interrupted at request (\d+) -->$").expect("a pattern");
    let mut session = Session::new(page);
    let mut differences = String::new();
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    // From the last line to the first, so that the numbers of the others stay valid.
    let mut replacements: Vec<(usize, usize, Vec<String>)> = Vec::new();
    for block in blocks(page) {
        session.save(&block);
        if block.language != "console" {
            continue;
        }
        let after = interrupt.captures(block.above).and_then(|found| found[1].parse().ok());
        for (index, step) in steps(&block).iter().enumerate() {
            let printed = session.run(step, after.filter(|_| index == 0));
            if comparable(&printed) != comparable(&step.output) {
                let _ = writeln!(
                    differences,
                    "line {}: $ {}\n--- page\n{}\n--- program\n{}\n",
                    step.line,
                    step.command,
                    step.output.join("\n"),
                    printed.join("\n")
                );
                replacements.push((step.line, step.output.len(), printed));
            }
        }
    }
    for (line, length, printed) in replacements.into_iter().rev() {
        lines.splice(line..line + length, printed);
    }
    (differences, lines.join("\n") + "\n")
}

/// README.md and the pages of docs/, as paths in the repository.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![PathBuf::from(repository("README.md"))];
    let docs = fs::read_dir(repository("docs")).expect("docs/");
    pages.extend(
        docs.map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "md")),
    );
    pages.sort();
    pages
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a page")
}

#[test]
fn console_blocks_show_what_the_program_prints() {
    let update = std::env::var_os("SMSQ_DOCS").is_some_and(|value| value == "update");
    let check = |path: PathBuf| {
        let page = read(&path);
        let (differences, updated) = check_page(&page);
        if update && !differences.is_empty() {
            fs::write(&path, updated).expect("writes the page");
            return String::new();
        }
        match differences.as_str() {
            "" => String::new(),
            differences => format!("{}\n{differences}", path.display()),
        }
    };
    let differences: String = std::thread::scope(|scope| {
        let threads: Vec<_> = pages().into_iter().map(|path| scope.spawn(|| check(path))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a page was checked")).collect()
    });
    assert!(
        differences.is_empty(),
        "{differences}`SMSQ_DOCS=update cargo test --test it docs::` writes the program's output into the pages"
    );
}

#[test]
fn wrong_console_blocks_are_found_and_replaced() {
    let page = "```text title=\"a.txt\"\none\n```\n\n```console\n$ cat a.txt \\\n  a.txt\none\ntwo\n$ echo $?\n1\n```\n";
    let (differences, updated) = check_page(page);
    assert!(differences.contains("line 7: $ cat a.txt"), "{differences}");
    assert!(differences.contains("line 10: $ echo $?"), "{differences}");
    assert_eq!(updated, page.replace("two", "one").replace("\n1\n", "\n0\n"));
    assert_eq!(check_page(&updated), (String::new(), updated));
}

#[test]
fn toml_blocks_are_accepted_by_the_program() {
    for path in pages() {
        for block in blocks(&read(&path)) {
            let other_file = block.title.is_some_and(|name| name != "smsq.toml");
            if block.language != "toml" || other_file {
                continue;
            }
            let scratch = Scratch::new();
            scratch.write("smsq.toml", &block.lines.join("\n"));
            let ran = scratch.run(["providers", "list"]);
            let place = format!("{}:{}", path.display(), block.line);
            assert_eq!(ran.code(), Some(0), "{place}\n{ran}");
        }
    }
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut fenced = false;
    page.lines()
        .filter(|line| {
            fenced ^= line.starts_with("```");
            !fenced && line.starts_with('#')
        })
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = |character: &char| character.is_alphanumeric() || " -_".contains(*character);
            heading.chars().filter(kept).collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern");
    for path in pages() {
        let page = read(&path);
        let directory = path.parent().expect("a directory");
        for found in link.captures_iter(&page) {
            let target = &found[1];
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => path.clone(),
                file => directory.join(file),
            };
            let place = format!("{}: {target}", path.display());
            assert!(file.exists(), "{place}");
            assert!(anchor.is_empty() || anchors(&read(&file)).contains(anchor), "{place}");
        }
    }
}

#[test]
fn architecture_page_names_files_and_functions_that_exist() {
    let page = read(Path::new(&repository("docs/architecture.md")));
    let named = Regex::new(r"`(src/[\w/]+\.rs)(?:::(?:(\w+)::)?(\w+))?`").expect("a pattern");
    for found in named.captures_iter(&page) {
        let path = repository(&found[1]);
        let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let has = |pattern: String| Regex::new(&pattern).expect("a pattern").is_match(&source);
        if let Some(function) = found.get(3) {
            let declared = has(format!(r"\bfn {}\b", function.as_str()));
            assert!(declared, "no function {}", &found[0]);
        }
        if let Some(owner) = found.get(2) {
            let declared = has(format!(r"\bimpl\b[^{{;]*\b{}\b", owner.as_str()));
            assert!(declared, "no type {}", &found[0]);
        }
    }
    for entry in fs::read_dir(repository("src")).expect("src/") {
        let entry = entry.expect("an entry");
        let mut name = entry.file_name().into_string().expect("UTF-8");
        if entry.path().is_dir() {
            name.push('/');
        }
        assert!(page.contains(&name), "`src/{name}` is missing in docs/architecture.md");
    }
}

#[test]
fn reference_has_the_table_of_settings() {
    let defaults = read(Path::new(&repository("config/default.toml")));
    let mut table =
        String::from("| setting | default | values | meaning |\n| --- | --- | --- | --- |\n");
    let (mut section, mut meaning) = (String::new(), Vec::new());
    for line in defaults.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            meaning.push(comment.replace('|', "\\|"));
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            section = format!("{}.", name.trim_end_matches(']'));
        } else if let Some((name, value)) = line.split_once(" = ") {
            let (default, values) = value.split_once("  # ").expect("a comment about its values");
            let default = match default.trim_matches('"') {
                "" | "[]" => "",
                default => &format!("`{default}`"),
            };
            let meaning = meaning.join(" ");
            let _ = writeln!(table, "| `{section}{name}` | {default} | {values} | {meaning} |");
        }
        meaning.clear();
    }
    assert_eq!(wrong_table("docs/reference.md", "Configuration", &table), None);
}

#[test]
fn operations_page_lists_every_metric() {
    let registered = Regex::new(r#"register(?:!)?\(\s*"([a-z_]+)""#).expect("a pattern");
    let mut names = BTreeSet::new();
    for file in ["src/metrics/lib.rs", "src/metrics/queue.rs"] {
        let source = read(Path::new(&repository(file)));
        let found = registered.captures_iter(&source);
        names.extend(found.map(|name| format!("smsq_{}", &name[1])));
    }
    let page = read(Path::new(&repository("docs/operations.md")));
    let row = Regex::new(r"(?m)^\| `(smsq_[a-z_]+?)(?:_total)?` \|").expect("a pattern");
    let listed: BTreeSet<String> =
        row.captures_iter(&page).map(|name| name[1].to_owned()).collect();
    assert_eq!(names, listed);
}

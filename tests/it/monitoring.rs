//! The metrics of a real run, the alert rules and the dashboard, checked with Prometheus, which `tests/run` provides.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use smsq_sandbox::SandboxConfig;

use crate::support::practice::{Practice, list, reserved_list, with_latency};
use crate::support::waiting::eventually;
use crate::support::{Scratch, repository};

const ALERTS: &str = "docs/monitoring/alerts.yml";
const DASHBOARD: &str = "docs/monitoring/dashboard.json";
/// Metrics of which this run has none: it fetches no receipts.
const WITHOUT_DATA: [&str; 2] = ["smsq_deliveries", "smsq_receipts_total"];

/// A file of the repository.
fn text_of(path: &str) -> String {
    fs::read_to_string(repository(path)).expect("a file of the repository")
}

/// Whether the commands are installed. A missing one is an error where `CI` is set.
fn has_prometheus() -> bool {
    let is_there = |name: &str| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let found = is_there("prometheus") && is_there("promtool");
    let is_ci = std::env::var_os("CI").is_some();
    assert!(found || !is_ci, "missing `prometheus`; `tests/run` provides it");
    found
}

fn promtool(arguments: &[&str], folder: &Path) {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("promtool runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{printed}\n{errors}");
}

/// Serves a file as the metrics of a process, until the test ends.
struct FileServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl FileServer {
    fn start(path: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server =
            Self { address: listener.local_addr().expect("an address"), is_over: Arc::default() };
        let is_over = Arc::clone(&server.is_over);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // The client may have disconnected.
                let _ = client.and_then(|client| answer(client, &path));
            }
        });
        server
    }
}

fn answer(mut client: TcpStream, path: &Path) -> std::io::Result<()> {
    let request = BufReader::new(client.try_clone()?);
    for line in request.lines() {
        if line?.is_empty() {
            break;
        }
    }
    let (status, body) = match fs::read_to_string(path) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", String::new()),
    };
    let kind = smsq_metrics::CONTENT_TYPE;
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

/// A private Prometheus that reads one target every second. It ends with the test.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Prometheus {
    fn start(scratch: &Scratch, target: SocketAddr) -> Self {
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [alerts.yml]\n\
             scrape_configs:\n- job_name: smsq\n  static_configs: [{{targets: ['{target}']}}]\n"
        );
        scratch.write("alerts.yml", &text_of(ALERTS));
        scratch.write("prometheus.yml", &config);
        let log = scratch.path("prometheus.log");
        let mut process = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg("--web.listen-address=127.0.0.1:0")
            .current_dir(scratch.path("."))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a log"))
            .spawn()
            .expect("prometheus starts");
        let mut address = None;
        eventually("it listens", || {
            let ended = process.try_wait().expect("a status");
            let log = fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "{log}");
            let line = log.lines().find(|line| line.contains("\"Listening on\""));
            let found = line.and_then(|line| line.split_once("address="));
            address = found.and_then(|(_, address)| address.trim().parse().ok());
            address.is_some()
        });
        let prometheus = Self { process, address: address.expect("an address") };
        eventually("it is ready", || prometheus.get("/-/ready").is_some());
        prometheus
    }

    /// The body of a response with status 200.
    fn get(&self, path: &str) -> Option<String> {
        let mut server = TcpStream::connect(self.address).ok()?;
        write!(server, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut response = String::new();
        server.read_to_string(&mut response).ok()?;
        let (head, body) = response.split_once("\r\n\r\n")?;
        let is_ok = head.split(' ').nth(1) == Some("200");
        is_ok.then(|| body.to_owned())
    }

    /// The samples of an expression now; `None` where it is not valid.
    fn query(&self, expression: &str) -> Option<Vec<Value>> {
        let query = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        let body = self.get(&format!("/api/v1/query?query={query}"))?;
        let mut answer: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        match answer["data"]["result"].take() {
            Value::Array(samples) => Some(samples),
            other => panic!("{expression}: {other}"),
        }
    }

    /// The value of the first sample.
    fn value(&self, expression: &str) -> Option<f64> {
        let samples = self.query(expression)?;
        samples.first()?["value"][1].as_str()?.parse().ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // So that it removes its lock; it may have ended already.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// The values of all keys `name` in a JSON value.
fn all_of<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| all_of(item, name, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(text) if key == name => found.push(text),
                    _ => all_of(value, name, found),
                }
            }
        }
        _ => {}
    }
}

/// The expressions of the dashboard, with values for its variables.
fn dashboard_expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text_of(DASHBOARD)).expect("JSON");
    assert!(dashboard["schemaVersion"].as_u64() >= Some(39));
    let mut sources = Vec::new();
    all_of(&dashboard["panels"], "uid", &mut sources);
    assert!(sources.iter().all(|uid| *uid == "${datasource}"));
    let mut written = Vec::new();
    all_of(&dashboard["panels"], "expr", &mut written);
    let mut expressions: Vec<String> = written
        .into_iter()
        .map(|written| {
            let expression = written.replace("$__rate_interval", "1m");
            expression.replace("$provider", ".*").replace("$campaign", ".*")
        })
        .collect();
    let mut definitions = Vec::new();
    all_of(&dashboard["templating"], "definition", &mut definitions);
    assert!(!definitions.is_empty());
    for definition in definitions {
        let inside = definition.strip_prefix("label_values(");
        let metric = inside.and_then(|inside| inside.split_once(','));
        expressions.push(metric.expect("label_values").0.to_owned());
    }
    assert!(expressions.iter().all(|one| !one.contains('$')), "{expressions:?}");
    expressions
}

#[test]
fn dashboard_and_alerts_fit_the_metrics_of_a_run() {
    if !has_prometheus() {
        return;
    }
    let gateway = Practice::start(with_latency(20));
    let scratch = gateway.with_references("rate = \"10/s\"").scratch();
    let rejected = reserved_list(1, 2);
    let rejected = rejected.strip_prefix("phone\n").expect("a header");
    scratch.import(&format!("{}{rejected}", list(120)));
    let server = FileServer::start(scratch.path("smsq.prom"));
    let prometheus = Prometheus::start(&scratch, server.address);
    let mut sending = scratch.start(["send", "--quiet", "--metrics-file", "smsq.prom"]);
    let accepted = "sum(smsq_attempts_total{outcome=\"accepted\"})";
    let alive = sending.until("attempts are counted during the run", || {
        prometheus.value(accepted).is_some_and(|count| count > 0.0)
    });
    assert!(alive, "it ended before");
    assert_eq!(prometheus.value("max(smsq_workers{state=\"alive\"})"), Some(1.0));
    assert_eq!(prometheus.value("smsq_database_up"), Some(1.0));
    assert_eq!(prometheus.query("smsq_run_exit_code"), Some(Vec::new()));

    sending.ended().assert_code(1);
    eventually("the end is read", || prometheus.value("smsq_run_exit_code") == Some(1.0));
    assert_eq!(prometheus.value(accepted), Some(120.0));
    let rejected = "smsq_attempts_total{provider=\"practice\",outcome=\"rejected\"}";
    assert_eq!(prometheus.value(rejected), Some(2.0));
    for (state, count) in [("sent", 120.0), ("failed", 2.0), ("queued", 0.0)] {
        let messages =
            format!("smsq_messages{{campaign=\"c\",provider=\"practice\",state=\"{state}\"}}");
        assert_eq!(prometheus.value(&messages), Some(count), "{state}");
    }
    assert_eq!(prometheus.value("smsq_segments_total"), Some(120.0));
    assert_eq!(prometheus.value("smsq_request_duration_seconds_count"), Some(122.0));
    assert_eq!(prometheus.value("smsq_rate_limit{window=\"1s\"}"), Some(10.0));
    assert_eq!(prometheus.value("smsq_import_rows_total{result=\"accepted\"}"), Some(122.0));

    for expression in dashboard_expressions() {
        let samples = prometheus.query(&expression);
        let samples = samples.unwrap_or_else(|| panic!("invalid: {expression}"));
        let may_lack = WITHOUT_DATA.iter().any(|name| expression.contains(name));
        assert!(may_lack || !samples.is_empty(), "no data: {expression}");
    }
    let rules = prometheus.get("/api/v1/rules").expect("rules");
    let rules: Value = serde_json::from_str(&rules).expect("JSON");
    let rules = rules["data"]["groups"][0]["rules"].as_array().expect("rules");
    assert!(rules.len() >= 7, "{rules:?}");
    eventually("all rules are evaluated", || {
        let rules = prometheus.get("/api/v1/rules").expect("rules");
        !rules.contains("\"health\":\"unknown\"")
    });
    for rule in rules {
        let expression = rule["query"].as_str().expect("an expression");
        assert!(prometheus.query(expression).is_some(), "{expression}");
    }
    let targets = prometheus.get("/api/v1/targets").expect("targets");
    assert!(targets.contains("\"lastError\":\"\""), "{targets}");
}

/// Series of metrics by minutes, and the alerts that they fire.
const ALERT_TESTS: &str = r#"
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - name: nothing is wrong
    interval: 1m
    input_series:
      - {series: 'smsq_oldest_due_seconds', values: '0x30'}
      - {series: 'smsq_messages{campaign="c",provider="p",state="sent"}', values: '0+100x30'}
      - {series: 'smsq_messages{campaign="c",provider="p",state="unknown"}', values: '0x30'}
      - {series: 'smsq_breaker_open{provider="p"}', values: '0 0 1 1 1 0x25'}
      - {series: 'smsq_workers{state="dead"}', values: '0x30'}
      - {series: 'smsq_database_up', values: '1x30'}
      - {series: 'smsq_run_exit_code', values: '1x30'}
    alert_rule_test: [ALL_QUIET]
  - name: everything is wrong
    interval: 1m
    input_series:
      - {series: 'smsq_oldest_due_seconds', values: '0+60x40'}
      - {series: 'smsq_messages{campaign="c",provider="p",state="sent"}', values: '900x40'}
      - {series: 'smsq_messages{campaign="c",provider="p",state="failed"}', values: '98x40'}
      - {series: 'smsq_messages{campaign="c",provider="p",state="unknown"}', values: '2x40'}
      - {series: 'smsq_breaker_open{provider="p"}', values: '1x40'}
      - {series: 'smsq_workers{state="dead"}', values: '2x40'}
      - {series: 'smsq_database_up', values: '0x40'}
      - {series: 'smsq_run_exit_code', values: '3x40'}
    promql_expr_test:
      - expr: count by (alertname) (ALERTS{alertstate="firing"})
        eval_time: 30m
        exp_samples: [ALL_FIRE]
"#;

const ALERT_NAMES: [&str; 7] = [
    "SmsqBreakerOpen",
    "SmsqDatabaseDown",
    "SmsqNoProgress",
    "SmsqOldestDue",
    "SmsqRunFailed",
    "SmsqUnknownMessages",
    "SmsqWorkerGone",
];

#[test]
fn alerts_fire_when_something_is_wrong() {
    if !has_prometheus() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("alerts.yml", &text_of(ALERTS));
    promtool(&["check", "rules", "alerts.yml"], &scratch.path("."));
    let quiet = ALERT_NAMES.map(|name| format!("{{eval_time: 30m, alertname: {name}}}"));
    let fire = ALERT_NAMES.map(|name| format!("{{labels: '{{alertname=\"{name}\"}}', value: 1}}"));
    let tests = ALERT_TESTS.replace("ALL_QUIET", &quiet.join(", "));
    scratch.write("tests.yml", &tests.replace("ALL_FIRE", &fire.join(", ")));
    promtool(&["test", "rules", "tests.yml"], &scratch.path("."));
}

#[test]
fn metrics_file_is_a_text_that_promtool_accepts() {
    if !has_prometheus() {
        return;
    }
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("rate = \"100/s\"").imported(&list(5));
    scratch.run(["send", "--quiet", "--metrics-file", "smsq.prom"]).assert_code(0);
    let output = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(File::open(scratch.path("smsq.prom")).expect("the file"))
        .output()
        .expect("promtool runs");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    assert_eq!(complaints, "");
}

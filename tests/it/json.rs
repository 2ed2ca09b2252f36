//! The keys of all JSON that commands print, as docs/reference.md lists them.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;
use smsq_sandbox::{FaultRate, Faults, ReceiptFaults, SandboxConfig};

use crate::support::Scratch;
use crate::support::practice::{Practice, list, reserved_list};
use crate::support::running::Running;
use crate::support::tables::wrong_table;

/// Commands, and lines that together print every key. They run in this order; those without a name only prepare.
const COMMANDS: [(&str, &[&str]); 15] = [
    (
        "import",
        &["import a.csv --text Hi --campaign c", "import b.csv c.csv --text Hi --campaign c"],
    ),
    ("suppress import", &["suppress import c.csv"]),
    ("send, run", &["send --yes", "run a.csv --text Hi --campaign d --yes"]),
    (
        "",
        &[
            "import late.csv --text Hi --campaign late --at 2099-01-01T09:00:00Z \
             --expires 2099-01-02T09:00:00Z --window 09:00-20:00 --timezone UTC --budget 5EUR",
            "import throttled.csv --text Hi --campaign throttled",
        ],
    ),
    ("status", &["status", "status --campaign late", "status --campaign c"]),
    ("receipts", &["receipts --for 1min", "receipts --campaign c"]),
    ("report", &["report", "report --campaign c"]),
    ("report --sent", &["report --sent", "report --sent --campaign c"]),
    ("report --undelivered", &["report --undelivered"]),
    ("providers list", &["providers list"]),
    ("check", &["check"]),
    ("retry", &["retry --campaign c"]),
    ("settle", &["settle --campaign c --unknown sent"]),
    ("purge", &["purge --phone +447400010010 --yes"]),
    ("purge --campaigns", &["purge --campaigns --yes"]),
];

/// Keys whose values have the same keys everywhere, which have a row of their own.
const SHARED: [&str; 6] = ["budget", "campaigns", "cost", "delivery", "segments", "window"];

/// The keys that were seen in a value.
#[derive(Default)]
struct Shape {
    is_list: bool,
    keys: Vec<(String, Shape)>,
}

impl Shape {
    fn below(&mut self, key: &str) -> &mut Self {
        let index = self.keys.iter().position(|(known, _)| known == key);
        let index = index.unwrap_or_else(|| {
            self.keys.push((key.to_owned(), Self::default()));
            self.keys.len() - 1
        });
        &mut self.keys[index].1
    }

    /// Adds the keys of a value, those of shared ones to `shared`.
    fn add(&mut self, value: &Value, shared: &mut Self) {
        match value {
            Value::Array(entries) => {
                self.is_list = true;
                for entry in entries {
                    self.add(entry, shared);
                }
            }
            Value::Object(object) => {
                for (key, value) in object {
                    let below = self.below(key);
                    if SHARED.contains(&key.as_str()) && !value.is_number() {
                        let mut taken = std::mem::take(shared.below(key));
                        taken.add(value, shared);
                        *shared.below(key) = taken;
                    } else if key != "columns" {
                        // The columns of a list have any name.
                        below.add(value, shared);
                    }
                }
            }
            _ => {}
        }
    }

    /// The keys that `base` does not have.
    fn beyond(&self, base: &Self) -> String {
        let is_new = |key: &String| base.keys.iter().all(|(known, _)| known != key);
        let keys = self.keys.iter().filter(|(key, _)| is_new(key));
        let keys = keys.map(|(key, below)| match (below.is_list, below.keys.is_empty()) {
            (false, true) => key.clone(),
            (true, true) => format!("{key}: []"),
            (false, false) => format!("{key}: {{{}}}", below.beyond(&Self::default())),
            (true, false) => format!("{key}: [{{{}}}]", below.beyond(&Self::default())),
        });
        keys.collect::<Vec<_>>().join(", ")
    }
}

/// A worker that waits for its provider, which asks to slow down.
fn throttled(scratch: &Scratch) -> Running {
    let mut sending = scratch.start(["send", "--campaign", "throttled", "--follow"]);
    let has_entries = |status: &Value, key: &str| {
        status[key].as_array().is_some_and(|entries| !entries.is_empty())
    };
    let is_waiting = || {
        let status = scratch.run(["status", "--format", "json"]).json();
        has_entries(&status, "stops") && has_entries(&status, "last_failures")
    };
    assert!(sending.until("the provider is throttled", is_waiting));
    sending
}

#[test]
fn reference_has_the_table_of_json_keys() {
    let gateway = Practice::start(SandboxConfig {
        latency: Duration::from_millis(200),
        faults: Faults {
            retry_after: Some(Duration::from_secs(600)),
            receipts: ReceiptFaults {
                delay: Duration::ZERO,
                undelivered: FaultRate::Part(0.5),
                ..ReceiptFaults::default()
            },
            ..Faults::default()
        },
        ..SandboxConfig::default()
    });
    let more = "[providers.practice.receipts]\nenabled = true\n[prices.practice]\ncurrency = \"EUR\"\nother = 1\n[limits]\nbudget = [\"1000EUR/month\"]";
    let scratch = gateway.with_references(more).scratch();
    let rejected = reserved_list(1, 3);
    scratch
        .write("a.csv", &list(40))
        .write("b.csv", &format!("{rejected}12\n"))
        .write("c.csv", "phone\n+447400999999\n")
        .write("late.csv", "phone,name\n+447400400000,Ann\n12,Bob\n")
        .write("throttled.csv", &reserved_list(4, 1));
    let mut shared = Shape::default();
    let mut shapes: Vec<(&str, Shape)> = Vec::new();
    for (name, lines) in COMMANDS {
        let running = (name == "status").then(|| throttled(&scratch));
        let mut shape = Shape::default();
        for line in lines {
            let line = line.split(' ').chain(["--format", "json", "--quiet"]);
            shape.add(&scratch.run(line).json(), &mut shared);
        }
        drop(running);
        if !name.is_empty() {
            shapes.push((name, shape));
        }
    }
    let mut table = String::from("| JSON of | keys |\n| --- | --- |\n");
    for (name, shape) in &shapes {
        let base = name.split_once(" --").map(|(base, _)| base);
        let base = base.and_then(|base| shapes.iter().find(|(name, _)| *name == base));
        let keys = match base {
            Some((name, base)) => format!("those of `{name}`, `{}`", shape.beyond(base)),
            None => format!("`{}`", shape.beyond(&Shape::default())),
        };
        let names = name.replace(", ", "`, `");
        let _ = writeln!(table, "| `{names}` | {keys} |");
    }
    for (key, shape) in &shared.keys {
        let each = if shape.is_list { "each of " } else { "" };
        let keys = shape.beyond(&Shape::default());
        let _ = writeln!(table, "| {each}`{key}` | `{keys}` |");
    }
    assert_eq!(wrong_table("docs/reference.md", "JSON", &table), None);
}

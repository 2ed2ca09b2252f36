//! Architecture rules: which module may use which other and which library, and that migrations and defaults fit
//! the code. Tests may use everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use smsq::config::{Config, DEFAULT, Environment, Flags};

/// Modules that every other may use.
const COMMON: [&str; 17] = [
    "activity", "age", "broken", "budget", "event", "instant", "jobs", "phone", "prices", "rate",
    "receipt", "route", "secret", "senders", "sms", "text", "window",
];

/// Each module, from the top down, and the modules below that it may use besides the common ones.
const DIRECTIONS: [(&str, &[&str]); 42] = [
    ("main", &["cli", "commands"]),
    ("lib", &[]),
    ("cli", &["commands", "config", "console", "exit", "logging"]),
    (
        "commands",
        &[
            "atomic_file",
            "config",
            "console",
            "exit",
            "hooks",
            "import",
            "logging",
            "metrics",
            "operations",
            "process",
            "prove",
            "provider",
            "receipts",
            "report",
            "sandbox",
            "sender",
            "serve",
            "service_manager",
            "store",
            "text",
        ],
    ),
    (
        "config",
        &[
            "hooks",
            "import",
            "logging",
            "metrics",
            "operations",
            "provider",
            "queue",
            "receipts",
            "sender",
            "serve",
            "store",
        ],
    ),
    (
        "serve",
        &[
            "atomic_file",
            "import",
            "metrics",
            "operations",
            "provider",
            "receipts",
            "report",
            "store",
            "text",
        ],
    ),
    ("sender", &["limit", "metrics", "process", "provider", "queue", "receipts", "store", "text"]),
    // Its judge uses nothing that it judges: `store` only connects.
    ("prove", &["store"]),
    ("receipts", &["metrics", "provider", "store"]),
    ("hooks", &["provider", "store", "text"]),
    ("operations", &["import", "store"]),
    ("metrics", &["store"]),
    ("import", &["atomic_file", "process", "store", "text"]),
    ("report", &["atomic_file", "store", "text"]),
    ("atomic_file", &[]),
    ("logging", &["console"]),
    ("sandbox", &["text"]),
    ("store", &["limit", "queue"]),
    ("queue", &["limit", "text"]),
    ("limit", &[]),
    ("provider", &["text"]),
    ("console", &["text"]),
    ("exit", &[]),
    ("service_manager", &[]),
    ("process", &[]),
    ("phone", &["text"]),
    ("event", &["text"]),
    ("text", &[]),
    ("budget", &[]),
    ("prices", &[]),
    ("rate", &[]),
    ("receipt", &[]),
    ("secret", &[]),
    ("route", &[]),
    ("senders", &[]),
    ("activity", &[]),
    ("age", &[]),
    ("broken", &[]),
    ("instant", &[]),
    ("jobs", &[]),
    ("sms", &[]),
    ("window", &[]),
];

/// One file of the source, without comments and tests.
struct Source {
    /// Below `src/`.
    path: String,
    code: String,
}

impl Source {
    /// The top-level module that it belongs to.
    fn part(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        first.trim_end_matches(".rs")
    }

    fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path.starts_with(place))
    }

    /// How many `super` lead from it to the root of the crate.
    fn depth(&self) -> usize {
        let steps = self.path.split('/').count();
        steps - usize::from(self.path.ends_with("/mod.rs"))
    }

    /// The top-level modules that its code names.
    fn uses(&self) -> BTreeSet<String> {
        self.names_below("crate|smsq", self.depth())
    }

    /// The modules that its code names below a root, which is `supers` steps up.
    fn names_below(&self, root: &str, supers: usize) -> BTreeSet<String> {
        let path = format!(r"\b({root}|super(?:::super)*)::(\w+|\{{)");
        let path = Regex::new(&path).expect("a pattern");
        let mut parts = BTreeSet::new();
        for found in path.captures_iter(&self.code) {
            let root = &found[1];
            if root.starts_with("super") && root.split("::").count() != supers {
                continue;
            }
            if &found[2] == "{" {
                let group = found.get(0).expect("the whole match").end();
                parts.extend(heads(&self.code[group..]));
            } else {
                parts.insert(found[2].to_owned());
            }
        }
        parts
    }
}

/// The first names in a group of imports, up to its closing brace.
fn heads(group: &str) -> Vec<String> {
    let mut heads = Vec::new();
    let mut depth = 1;
    let mut word = String::new();
    for character in group.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 1 && !matches!(character, ',' | '}') {
            word.push(character);
        }
        if depth == 0 || (depth == 1 && character == ',') {
            let head = word.split("::").next().unwrap_or_default().trim();
            if !head.is_empty() {
                heads.push(head.to_owned());
            }
            word.clear();
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// The source files without test modules.
fn sources() -> Vec<Source> {
    let declared = Regex::new(
        r#"#\[cfg\(test\)\]\s*(?:#\[path = "(?<file>[^"]+)"\]\s*)?(?:pub(?:\([^)]*\))? )?mod (?<name>\w+);"#,
    )
    .expect("a pattern");
    let comment = Regex::new(r"(?m)^\s*//.*$|\s// .*$").expect("a pattern");
    let folder = root("src");
    let mut test_files: BTreeSet<PathBuf> = BTreeSet::new();
    let mut read = Vec::new();
    for path in files(&folder) {
        let text = fs::read_to_string(&path).expect("a file of the source");
        let folder = path.parent().expect("a folder");
        let below = match path.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod" | "lib" | "main") | None => folder.to_owned(),
            Some(stem) => folder.join(stem),
        };
        for module in declared.captures_iter(&text) {
            test_files.insert(match module.name("file") {
                Some(file) => folder.join(file.as_str()),
                None => below.join(&module["name"]),
            });
        }
        read.push((path, text));
    }
    let is_test = |path: &Path| {
        let without = path.with_extension("");
        path.ancestors().any(|part| test_files.contains(part)) || test_files.contains(&without)
    };
    read.into_iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(path, text)| {
            let inside = text.find("#[cfg(test)]\nmod tests {");
            let code = &text[..inside.unwrap_or(text.len())];
            let path = path.strip_prefix(&folder).expect("a path below");
            Source {
                path: path.to_string_lossy().replace('\\', "/"),
                code: comment.replace_all(code, "").into_owned(),
            }
        })
        .collect()
}

/// The files outside of `places` whose code matches the pattern.
fn violations(pattern: &str, places: &[&str]) -> Vec<String> {
    let pattern = Regex::new(pattern).expect("a pattern");
    sources()
        .into_iter()
        .filter(|source| !source.is_in(places) && pattern.is_match(&source.code))
        .map(|source| source.path)
        .collect()
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn modules_use_only_modules_below_them() {
    let directions: BTreeMap<&str, &[&str]> = DIRECTIONS.into_iter().collect();
    let mut violations = Vec::new();
    for source in sources() {
        let part = source.part();
        let below = directions.get(part);
        let below = below.unwrap_or_else(|| panic!("`{part}` has no line in DIRECTIONS"));
        for known in source.uses() {
            let is_part = directions.contains_key(known.as_str());
            let allowed = known == part
                || below.contains(&known.as_str())
                || (COMMON.contains(&known.as_str()));
            if is_part && !allowed {
                violations.push(format!("{} uses {known}", source.path));
            }
        }
    }
    assert_eq!(violations, none());
}

#[test]
fn files_of_a_module_do_not_import_in_circles() {
    let mut circles = Vec::new();
    for part in ["import", "provider", "serve", "store", "sender"] {
        // A file, or a folder as a whole. `mod.rs` declares them all.
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for source in sources().iter().filter(|source| source.part() == part) {
            let below = source.path.split('/').nth(1).unwrap_or_default();
            let name = below.trim_end_matches(".rs").to_owned();
            if name != "mod" {
                let root = format!("crate::{part}");
                let names = source.names_below(&root, source.depth() - 1);
                uses.entry(name).or_default().extend(names);
            }
        }
        // What uses none of the others is not part of a circle.
        loop {
            let others: BTreeSet<String> = uses.keys().cloned().collect();
            uses.retain(|name, used| used.iter().any(|one| one != name && others.contains(one)));
            if uses.len() == others.len() {
                break;
            }
        }
        circles.extend(uses.into_keys().map(|name| format!("{part}/{name}")));
    }
    assert_eq!(circles, none());
}

#[test]
fn used_modules_are_read_from_paths() {
    let source = Source {
        path: "sandbox/deep/server.rs".to_owned(),
        code: "use super::super::super::store::Store; use super::super::ledger; use smsq::rate;
               use crate::{phone::{Phone, mask}, text}; fn f() -> crate::sms::Sms {}"
            .to_owned(),
    };
    let known: Vec<String> = source.uses().into_iter().collect();
    assert_eq!(known, ["phone", "rate", "sms", "store", "text"]);
    let read: BTreeSet<String> = sources().into_iter().map(|source| source.path).collect();
    for file in ["main.rs", "store/mod.rs", "store/claim.rs", "cli.rs"] {
        assert!(read.contains(file), "{file}");
    }
    for file in ["store/commit/tests.rs", "sender/simulation.rs"] {
        assert!(!read.contains(file), "{file}");
    }
}

#[test]
fn directions_have_no_circles() {
    let order: Vec<&str> = DIRECTIONS.iter().map(|(part, _)| *part).collect();
    for (index, (part, below)) in DIRECTIONS.iter().enumerate() {
        for known in *below {
            let place = order.iter().position(|other| other == known);
            assert!(place > Some(index), "{part} is above {known}");
        }
    }
}

#[test]
fn licences_of_the_manifest_are_in_the_repository() {
    let read = |name: &str| fs::read_to_string(name).expect(name);
    assert!(read("Cargo.toml").contains("license = \"MIT OR Apache-2.0\""));
    assert!(read("LICENSE-MIT").contains("Permission is hereby granted"));
    assert!(read("LICENSE-APACHE").contains("Version 2.0, January 2004"));
}

#[test]
fn only_the_clients_of_providers_and_hooks_use_reqwest() {
    // The client of hooks refuses what a provider may have: private addresses, redirects.
    let places = ["provider/client.rs", "provider/client/", "hooks/client.rs"];
    assert_eq!(violations(r"\breqwest\b", &places), none());
}

/// A body that is read elsewhere has no limit for the whole of it.
#[test]
fn only_one_module_of_the_server_reads_bodies() {
    let readers = Regex::new(
        r"\bMultipart\b|body::to_bytes|into_data_stream|BodyDataStream|BodyExt|\bRawForm\b|\bFromRequest\b|: Bytes,|: String,\s*\) ->|\bbody: Body\b|axum::Form|Json\(\w+\): Json|frame\(\)",
    )
    .expect("a pattern");
    let sources = sources();
    let elsewhere: Vec<String> = sources
        .iter()
        .filter(|source| source.part() == "serve" && source.path != "serve/body.rs")
        .filter_map(|source| {
            let found = readers.find(&source.code)?;
            Some(format!("{}: {}", source.path, found.as_str()))
        })
        .collect();
    assert_eq!(elsewhere, none());
    let body = sources.iter().find(|source| source.path == "serve/body.rs");
    assert!(body.is_some_and(|body| readers.is_match(&body.code)));
}

#[test]
fn only_the_store_uses_diesel() {
    let found = violations(r"\bdiesel(_async)?\b", &["store/"]);
    assert_eq!(found, none());
}

#[test]
fn only_the_command_line_uses_clap() {
    assert_eq!(violations(r"\bclap\b", &["cli.rs", "commands/", "main.rs"]), none());
}

#[test]
fn only_the_console_prints() {
    let prints = r"\be?print(ln)?!|\bdbg!|[^.\w]std(out|err)\(";
    // Rejected rows are data and may go to standard output: `--rejects -`.
    let places = ["console.rs", "atomic_file.rs"];
    assert_eq!(violations(prints, &places), none());
}

#[test]
fn no_type_name_has_two_meanings() {
    // Each has the same meaning in every module: arguments and actions of a command, settings, a row that was read.
    let common = ["Action", "Args", "Config", "FailedRow", "SentRow", "Settings"];
    let definition = r"(?m)^(?:\s*(?:pub(?:\([a-z: ]+\))? )?(?:struct|enum|trait)|(?:pub(?:\([a-z: ]+\))? )?type) (?<name>[A-Z]\w*)";
    let definition = Regex::new(definition).expect("a pattern");
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        let names = definition.captures_iter(&source.code);
        for name in names.map(|found| found["name"].to_owned()) {
            places.entry(name).or_default().push(source.path.clone());
        }
    }
    places.retain(|name, places| places.len() > 1 && !common.contains(&name.as_str()));
    assert_eq!(places, BTreeMap::new());
}

#[test]
fn every_file_has_a_head_comment() {
    let silent: Vec<PathBuf> = files(&root("src"))
        .into_iter()
        .chain(files(&root("tests/it")))
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .filter(|path| !fs::read_to_string(path).expect("a file").starts_with("//! "))
        .collect();
    assert_eq!(silent, Vec::<PathBuf>::new());
}

#[test]
fn migrations_have_the_same_names_on_every_engine() {
    let mut all: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    let folder = root("migrations");
    for path in files(&folder) {
        let below = path.strip_prefix(&folder).expect("a path below");
        let mut parts = below.components();
        let database = parts.next().expect("a database").as_os_str();
        let names = all.entry(PathBuf::from(database)).or_default();
        names.insert(parts.as_path().to_owned());
    }
    assert!(all.contains_key(Path::new("sqlite")));
    for (database, names) in &all {
        assert_eq!(names, &all[Path::new("sqlite")], "{}", database.display());
    }
}

/// The tables of an engine's migrations with their columns in order.
fn tables(database: &str) -> BTreeMap<String, Vec<String>> {
    let table =
        Regex::new(r"(?ms)^CREATE TABLE (?:IF NOT EXISTS )?(\w+) \((.*?)^\)").expect("a pattern");
    let column = Regex::new(r"(?m)^    ([a-z_]+) ").expect("a pattern");
    // A generated column holds nothing of its own: it stands for a partial index, which not every engine has.
    let added = Regex::new(r"(?m)ADD COLUMN ([a-z]\w+) (?<rest>.*)$").expect("a pattern");
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files(&root(&format!("migrations/{database}"))) {
        let sql = fs::read_to_string(path).expect("a migration");
        for found in table.captures_iter(&sql) {
            let names = column.captures_iter(&found[2]);
            let names = names.map(|name| name[1].to_owned()).collect();
            tables.insert(found[1].to_owned(), names);
        }
        let names = added
            .captures_iter(&sql)
            .filter(|found| !found["rest"].contains(" AS ("))
            .map(|found| found[1].to_owned());
        tables.entry("added later".to_owned()).or_default().extend(names);
    }
    tables
}

#[test]
fn tables_have_the_same_columns_on_every_engine() {
    let sqlite = tables("sqlite");
    assert_eq!(sqlite.len(), 33);
    assert_eq!(sqlite["suppression"], ["phone", "reason", "created_at"]);
    for database in ["mysql", "postgres"] {
        assert_eq!(tables(database), sqlite, "{database}");
    }
}

/// The fields of a struct in its source, without those that are not read.
fn fields(file: &str, name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root(file)).expect("a file of the source");
    let head = format!("struct {name} {{\n");
    let from = text.find(&head).unwrap_or_else(|| panic!("{file} has no {name}"));
    let body = &text[from + head.len()..];
    let body = &body[..body.find("\n}").expect("its end")];
    assert!(!body.contains("serde(default"), "{file}: defaults belong in config/default.toml");
    let skipped = Regex::new(r"#\[serde\(skip\)\]\n.*").expect("a pattern");
    let field = Regex::new(r"(?m)^    (?:pub )?(\w+):").expect("a pattern");
    field.captures_iter(&skipped.replace_all(body, "")).map(|found| found[1].to_owned()).collect()
}

#[test]
fn every_setting_has_a_default() {
    let defaults: toml::Table = DEFAULT.parse().expect("TOML");
    let names = |table: &toml::Table| table.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&defaults), fields("src/config/mod.rs", "Config"));
    let owners = [
        ("database", "src/store/mod.rs", "Config"),
        ("limits", "src/config/mod.rs", "LimitsConfig"),
        ("approval", "src/queue/approval.rs", "ApprovalRules"),
        ("sender", "src/sender/mod.rs", "Config"),
        ("retry", "src/queue/retry.rs", "Config"),
        ("circuit_breaker", "src/sender/breaker.rs", "Config"),
        ("auto_pause", "src/sender/auto_pause.rs", "Config"),
        ("import", "src/import/config.rs", "Config"),
        ("receipts", "src/receipts/mod.rs", "Config"),
        ("retention", "src/store/purge.rs", "RetentionConfig"),
        ("redis", "src/import/consumer/mod.rs", "RedisConfig"),
        ("log", "src/logging.rs", "Config"),
        ("serve", "src/serve/config.rs", "Config"),
        ("metrics", "src/metrics/mod.rs", "Config"),
        ("notify", "src/hooks/config.rs", "NotifyConfig"),
    ];
    for (section, file, owner) in owners {
        let table = defaults[section].as_table().expect("a section");
        assert_eq!(names(table), fields(file, owner), "[{section}]");
    }
    let sections = defaults.values().filter(|value| value.is_table()).count();
    assert_eq!(sections, owners.len());
    let nothing = Environment::new();
    Config::load(&Flags::default(), &nothing).expect("the defaults are a configuration");
}

//! Architecture rules that the compiler does not check: what crates, folders and files may use, and that migrations and
//! defaults fit the code. Tests may use everything.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use smsq::config::{Config, DEFAULT, Environment, Flags};

use source::{Source, sources};

/// Libraries, and the crates that may use them; the crates that smsq consists of have their directions in their manifests.
const USERS: [(&str, &str); 9] = [
    ("axum", "serve"),
    ("clap", "smsq"),
    // How an instant is written into a query only its own crate can say.
    ("diesel", "message store"),
    ("mysql_async", "store"),
    ("redis", "import"),
    // The client of hooks refuses what a provider may have: private addresses, redirects.
    ("reqwest", "hooks provider"),
    ("rusqlite", "store"),
    ("tokio-postgres", "store"),
    ("utoipa-axum", "serve"),
];

/// The most lines in the files of one folder, without those of its folders.
const FOLDER: usize = 5_000;
/// The most files at the top of the source.
const TOP: usize = 6;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The manifests of the crates that smsq consists of.
fn manifests() -> Vec<PathBuf> {
    let mut all = vec![root("Cargo.toml")];
    all.extend(files(&root("src")).into_iter().filter(|path| path.ends_with("Cargo.toml")));
    all
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

/// The files outside of `places` whose code matches the pattern.
fn violations(pattern: &str, places: &[&str]) -> Vec<String> {
    let pattern = Regex::new(pattern).expect("a pattern");
    sources()
        .iter()
        .filter(|source| !source.is_in(places) && pattern.is_match(&source.code))
        .map(|source| source.path.clone())
        .collect()
}

fn none() -> Vec<String> {
    Vec::new()
}

/// What one file takes from another.
struct Arrow<'a> {
    from: &'a Source,
    to: &'a Source,
    /// The name in the module of `to`, if it is not the module itself.
    name: Option<&'a str>,
}

fn arrows() -> Vec<Arrow<'static>> {
    let sources = sources();
    let files: BTreeMap<&[String], &Source> =
        sources.iter().rev().map(|source| (source.module.as_slice(), source)).collect();
    let mut arrows = Vec::new();
    for from in sources {
        for path in &from.names {
            // The longest beginning that is a module: `main.rs` and `lib.rs` are the root.
            let end = (1..=path.len()).rev().find(|end| files.contains_key(&path[..*end]));
            let Some((end, to)) = end.map(|end| (end, files[&path[..end]])) else {
                continue;
            };
            if to.path != from.path {
                arrows.push(Arrow { from, to, name: path.get(end).map(String::as_str) });
            }
        }
    }
    arrows
}

#[test]
fn libraries_are_used_by_their_owners() {
    let mut users: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for path in manifests() {
        let text = fs::read_to_string(&path).expect("a manifest");
        let manifest: toml::Table = text.parse().expect("TOML");
        let name = manifest["package"]["name"].as_str().expect("a name").replace("smsq-", "");
        for (library, _) in USERS {
            if manifest["dependencies"].as_table().expect("a table").contains_key(library) {
                users.entry(library).or_default().insert(name.clone());
            }
        }
    }
    for (library, names) in USERS {
        let names: BTreeSet<String> = names.split(' ').map(str::to_owned).collect();
        assert_eq!(users[library], names, "{library}");
    }
}

/// A round of faults is judged by what is not judged itself.
#[test]
fn judge_uses_only_the_words_and_the_connection() {
    let uses: BTreeSet<&str> = arrows()
        .iter()
        .filter(|arrow| arrow.from.part() == "prove")
        .map(|arrow| arrow.to.part())
        .collect();
    assert_eq!(uses, BTreeSet::from(["message", "prove", "store"]));
}

/// Of the files and folders in each folder. `mod.rs` and `lib.rs` are left out: they use the others, and these use what
/// they define.
#[test]
fn no_folder_has_a_circle() {
    let mut folders: BTreeMap<String, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for Arrow { from, to, .. } in arrows() {
        let (mut from, mut to) = (from.path.as_str(), to.path.as_str());
        let mut folder = String::new();
        while let (Some((outer, inner)), Some((same, other))) =
            (from.split_once('/'), to.split_once('/'))
            && outer == same
        {
            folder = format!("{folder}{outer}/");
            (from, to) = (inner, other);
        }
        let name =
            |path: &'static str| path.split('/').next().map(|name| name.trim_end_matches(".rs"));
        let (from, to) = (name(from).unwrap_or_default(), name(to).unwrap_or_default());
        if from != to && ![from, to].iter().any(|name| ["mod", "lib"].contains(name)) {
            folders.entry(folder).or_default().entry(from).or_default().insert(to);
        }
    }
    assert!(folders.contains_key("serve/pages/") && folders.contains_key("store/queue/"));
    let mut circles = Vec::new();
    for (folder, mut uses) in folders {
        // What uses none of the others, or is used by none, is not part of a circle.
        loop {
            let before = uses.len();
            let names: BTreeSet<&str> = uses.keys().copied().collect();
            let used: BTreeSet<&str> = uses.values().flatten().copied().collect();
            uses.retain(|name, its| used.contains(name) && !its.is_disjoint(&names));
            if uses.len() == before {
                break;
            }
        }
        circles.extend(uses.into_keys().map(|name| format!("{folder}{name}")));
    }
    assert_eq!(circles, none());
}

/// `pub use` in a `mod.rs` is for others: inside its folder names are imported from where they are defined.
#[test]
fn files_import_names_of_their_folder_from_their_owners() {
    let taken: BTreeSet<String> = arrows()
        .iter()
        .filter(|Arrow { from, to, .. }| from.module.starts_with(&to.module))
        .filter_map(|Arrow { from, to, name }| {
            let name = name.filter(|name| to.reexports.contains(*name))?;
            Some(format!("{} takes {name} from {}", from.path, to.path))
        })
        .collect();
    assert_eq!(taken, BTreeSet::new());
}

#[test]
fn folders_are_small_or_have_folders_inside() {
    let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for path in files(&root("src")) {
        let text = fs::read_to_string(&path).expect("a file");
        let folder = path.parent().expect("a folder").to_owned();
        *folders.entry(folder).or_default() += text.lines().count();
    }
    folders.retain(|_, lines| *lines > FOLDER);
    assert_eq!(folders, BTreeMap::new());
    let top = fs::read_dir(root("src")).expect("a folder");
    assert!(
        top.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_file())).count() <= TOP
    );
}

#[test]
fn used_modules_are_read_from_paths() {
    let text = "use super::super::store::Store; use super::ledger; use smsq_rate::{Rate, parse}; use tail::Tail as T;
        use crate::{phone::{Phone, mask}, text}; fn f() -> smsq::sms::Sms { one!(super::two::three()) }
        #[cfg(test)] mod tests { use crate::never; } mod inner { use super::outer; } mod tail;";
    let module = ["sandbox", "server"].map(str::to_owned);
    let (source, declared) = Source::parse("sandbox/server.rs", &module, text);
    let names: Vec<String> = source.names.iter().map(|name| name.join("::")).collect();
    let known = [
        "rate::Rate",
        "rate::parse",
        "sandbox::ledger",
        "sandbox::phone::Phone",
        "sandbox::phone::mask",
        "sandbox::server::outer",
        "sandbox::server::tail::Tail",
        "sandbox::text",
        "sandbox::two::three",
        "sms::Sms",
        "store::Store",
    ];
    assert_eq!(names, known);
    assert_eq!(declared, ["tail"]);
    let read: BTreeSet<&str> = sources().iter().map(|source| source.path.as_str()).collect();
    for file in ["main.rs", "store/lib.rs", "store/queue/claim.rs", "cli.rs"] {
        assert!(read.contains(file), "{file}");
    }
    for file in ["store/queue/commit/tests.rs", "sender/simulation/mod.rs"] {
        assert!(!read.contains(file), "{file}");
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
    let places = ["provider/client/", "hooks/client.rs"];
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

/// What is sent to a database is made and run in one place; databases of other programs are only read.
#[test]
fn only_connections_and_sources_use_database_drivers() {
    let drivers = r"\b(rusqlite|tokio_postgres|mysql_async)\b";
    assert_eq!(violations(drivers, &["store/connection/", "store/source/"]), none());
}

#[test]
fn only_the_console_prints() {
    let prints = r"\be?print(ln)?!|\bdbg!|[^.\w]std(out|err)\(";
    // Rejected rows are data and may go to standard output: `--rejects -`.
    let places = ["process/console.rs", "process/atomic_file.rs"];
    assert_eq!(violations(prints, &places), none());
}

#[test]
fn no_argument_is_a_tuple() {
    let found: Vec<&String> = sources().iter().flat_map(|source| &source.with_tuples).collect();
    assert_eq!(found, Vec::<&String>::new());
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

/// The tables of an engine with their columns in order.
fn tables(database: &str) -> BTreeMap<String, Vec<String>> {
    let table =
        Regex::new(r"(?ms)^CREATE TABLE (?:IF NOT EXISTS )?(\w+) \((.*?)^\)").expect("a pattern");
    let column = Regex::new(r"(?m)^    ([a-z_]+) (?<rest>.*)$").expect("a pattern");
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files(&root(&format!("migrations/{database}"))) {
        let sql = fs::read_to_string(path).expect("a migration");
        for found in table.captures_iter(&sql) {
            // A generated column holds nothing of its own: it stands for a partial index, which not every engine has.
            let names = column
                .captures_iter(&found[2])
                .filter(|column| !column["rest"].contains(" AS ("))
                .map(|column| column[1].to_owned())
                .collect();
            tables.insert(found[1].to_owned(), names);
        }
    }
    tables
}

#[test]
fn tables_have_the_same_columns_on_every_engine() {
    let sqlite = tables("sqlite");
    assert_eq!(sqlite.len(), 32);
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
        ("database", "src/store/lib.rs", "Config"),
        ("limits", "src/config/mod.rs", "LimitsConfig"),
        ("approval", "src/lifecycle/approval.rs", "ApprovalRules"),
        ("sender", "src/sender/lib.rs", "Config"),
        ("retry", "src/lifecycle/retry.rs", "Config"),
        ("circuit_breaker", "src/sender/provider_state/breaker.rs", "Config"),
        ("auto_pause", "src/sender/auto_pause.rs", "Config"),
        ("import", "src/import/config.rs", "Config"),
        ("receipts", "src/receipts/lib.rs", "Config"),
        ("retention", "src/store/retention/purge.rs", "RetentionConfig"),
        ("redis", "src/import/consumer/mod.rs", "RedisConfig"),
        ("log", "src/process/logging.rs", "Config"),
        ("serve", "src/serve/config.rs", "Config"),
        ("metrics", "src/metrics/lib.rs", "Config"),
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

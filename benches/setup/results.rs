//! The results as JSON, to compare two builds: `--json FILE`.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Map, Value};

/// Adds a result to the file, or replaces the one of this name.
pub(crate) fn save(name: &str, result: Value) -> anyhow::Result<()> {
    let Some(path) = option("--json")? else {
        return Ok(());
    };
    let mut results: Map<String, Value> = match std::fs::read(&path) {
        Ok(json) => serde_json::from_slice(&json)
            .with_context(|| format!("`{}` has no results", path.display()))?,
        Err(error) if error.kind() == ErrorKind::NotFound => Map::new(),
        Err(error) => return Err(error).with_context(|| format!("`{}`", path.display())),
    };
    results.insert(name.to_owned(), result);
    let json = serde_json::to_vec_pretty(&results)?;
    std::fs::write(&path, json).with_context(|| format!("cannot write `{}`", path.display()))
}

/// The path that follows an option on the command line.
pub(crate) fn option(name: &str) -> anyhow::Result<Option<PathBuf>> {
    let mut arguments = std::env::args_os().skip_while(|argument| argument != name);
    if arguments.next().is_none() {
        return Ok(None);
    }
    let path = arguments.next();
    let path = path.with_context(|| format!("missing path after `{name}`"))?;
    Ok(Some(std::path::absolute(path)?))
}

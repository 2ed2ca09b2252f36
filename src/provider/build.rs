//! Lists the files in `config/providers`, so that a vendor needs no line elsewhere.

use std::fmt::Write as _;
use std::{env, fs, io};

/// Seen from this package.
const FOLDER: &str = "../../config/providers";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed={FOLDER}");
    let mut names = Vec::new();
    for entry in fs::read_dir(FOLDER)? {
        let file = entry?.file_name().into_string().unwrap_or_default();
        match file.strip_suffix(".toml") {
            Some(name) if !name.ends_with(".example") => names.push(name.to_owned()),
            _ => {}
        }
    }
    names.sort_unstable();
    let mut table = String::from("&[\n");
    for name in names {
        let path = format!("/{FOLDER}/{name}.toml");
        let _ = writeln!(
            table,
            "({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),"
        );
    }
    table.push(']');
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(std::path::Path::new(&out).join("providers.rs"), table)
}

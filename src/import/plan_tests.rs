//! Faults of the whole list are found before anything is written, with a hint.

use std::path::PathBuf;

use super::super::options::TextSource;
use super::*;

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a scratch folder"))
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("writes");
        path
    }

    /// The message and the hint, without the name of the folder.
    fn fault(&self, options: Options) -> (String, String) {
        let error = Plan::prepare(options).err().expect("a fault of the whole");
        let folder = format!("{}/", self.0.path().display());
        (error.to_string().replace(&folder, ""), error.hint().unwrap_or_default())
    }
}

fn text(text: &str) -> TextSource {
    TextSource::Text(text.to_owned())
}

#[test]
fn faults_of_the_text_are_found_first() {
    let scratch = Scratch::new();
    let file = scratch.file("list.csv", b"phone,name,city\n");
    let with = |text: TextSource| Options { file: file.clone(), text, ..Options::default() };
    for (source, error, hint) in [
        (
            TextSource::Column,
            "missing column `content` in `list.csv`, and no text is given",
            "give the text with `--text` or `--template`",
        ),
        (
            text("Hi {{ nam }}"),
            "unknown column `nam` in `--text`: `list.csv` does not have it",
            "did you mean `name`?",
        ),
        (
            text("Hi {{ zzz }}"),
            "unknown column `zzz` in `--text`: `list.csv` does not have it",
            "its columns are `phone`, `name`, `city`",
        ),
        (text("Hi {{ name "), "", ""),
        (TextSource::Template(scratch.0.path().join("none.txt")), "`none.txt` does not exist", ""),
        (
            TextSource::Template(scratch.file("latin.txt", b"Hi\n\xe4")),
            "`latin.txt` is not UTF-8: 0xe4 at byte 3, line 2",
            "save it as UTF-8 and import it again",
        ),
    ] {
        let (found, advice) = scratch.fault(with(source));
        if error.is_empty() {
            assert!(found.starts_with("`--text`: line 1: "), "{found}");
        } else {
            assert_eq!((found.as_str(), advice.as_str()), (error, hint));
        }
    }
}

#[test]
fn header_must_be_a_row() {
    let scratch = Scratch::new();
    let file = scratch.file("list.csv", b"phone,\"name\n13800138000,Ann\n");
    let options = Options { file, text: text("Hi"), ..Options::default() };
    assert_eq!(scratch.fault(options).0, "`list.csv`: line 1: a quote is opened and never closed");
}

#[test]
fn column_of_unique_must_exist() {
    let scratch = Scratch::new();
    let file = scratch.file("list.csv", b"phone,invoice\n");
    let Ok(unique) = "invoce".parse();
    let options = Options { file, text: text("Hi"), unique: Some(unique), ..Options::default() };
    let (error, hint) = scratch.fault(options);
    assert_eq!(error, "missing column `invoce` in `list.csv`, which `--unique invoce` names");
    assert_eq!(hint, "did you mean `invoice`?");
}

#[test]
fn folder_of_rejects_must_exist() {
    let scratch = Scratch::new();
    let file = scratch.file("list.csv", b"phone\n");
    let rejects = Some(scratch.0.path().join("none/r.csv"));
    let options = Options { file, text: text("Hi"), rejects, ..Options::default() };
    assert_eq!(
        scratch.fault(options).0,
        "cannot write rejected rows to `none/r.csv`: No such file or directory (os error 2)"
    );
}

#[test]
fn phone_column_is_not_guessed_beyond_a_short_title() {
    let scratch = Scratch::new();
    let row = "a|b|c|+447400123456";
    let file = scratch.file("list.csv", format!("sep=|\nTitle\n{row}\n{row}\n").as_bytes());
    let options = Options { file, text: text("Hi"), ..Options::default() };
    let (error, hint) = scratch.fault(options);
    assert_eq!(error, "missing phone column in `list.csv`: it has only `Title`");
    assert_eq!(hint, "name it: `--column phone=COLUMN`");
}

#[test]
fn hint_about_the_phone_column_is_printable() {
    let scratch = Scratch::new();
    let file = scratch.file("list.csv", b"a,b\x1b[2J\nx,+447400123456\n");
    let options = Options { file, text: text("Hi"), ..Options::default() };
    let (_, hint) = scratch.fault(options);
    assert_eq!(hint, "name it: `--column phone=b [2J`");
}

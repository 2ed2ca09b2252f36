//! Faults of the whole are found before anything is written, and each says what to do.

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
        let error = Plan::prepare(options).expect_err("a fault of the whole");
        let folder = format!("{}/", self.0.path().display());
        (
            error.to_string().replace(&folder, ""),
            error.hint().unwrap_or_default(),
        )
    }
}

fn text(text: &str) -> TextSource {
    TextSource::Text(text.to_owned())
}

#[test]
fn what_is_wrong_with_the_text_is_said_before_a_row_is_read() {
    let scratch = Scratch::new();
    let file = scratch.file("list.csv", b"phone,name,city\n");
    let with = |text: TextSource| Options {
        file: file.clone(),
        text,
        ..Options::default()
    };
    for (source, error, hint) in [
        (
            TextSource::Column,
            "`list.csv` has no column `content`, and no text was given",
            "give the text with `--text` or `--template`",
        ),
        (
            text("Hi {{ nam }}"),
            "`nam` in `--text` is no column of `list.csv`",
            "did you mean `name`?",
        ),
        (
            text("Hi {{ zzz }}"),
            "`zzz` in `--text` is no column of `list.csv`",
            "its columns are `phone`, `name`, `city`",
        ),
        (text("Hi {{ name "), "", ""),
        (
            TextSource::Template(scratch.0.path().join("none.txt")),
            "`none.txt` does not exist",
            "",
        ),
        (
            TextSource::Template(scratch.file("latin.txt", b"Hi\n\xe4")),
            "`latin.txt` is not UTF-8: 0xe4 at byte 3, line 2",
            "save it as UTF-8 (in a spreadsheet: save as, `CSV UTF-8`) and import it again",
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
fn a_header_that_is_no_row_is_a_fault_of_the_whole() {
    let scratch = Scratch::new();
    let file = scratch.file("list.csv", b"phone,\"name\n13800138000,Ann\n");
    let options = Options {
        file,
        text: text("Hi"),
        ..Options::default()
    };
    assert_eq!(
        scratch.fault(options).0,
        "`list.csv`: line 1: a quote is opened and never closed"
    );
}

#[test]
fn a_column_to_be_unique_by_must_be_there() {
    let scratch = Scratch::new();
    let file = scratch.file("list.csv", b"phone,invoice\n");
    let Ok(unique) = "invoce".parse();
    let options = Options {
        file,
        text: text("Hi"),
        unique: Some(unique),
        ..Options::default()
    };
    let (error, hint) = scratch.fault(options);
    assert_eq!(
        error,
        "`list.csv` has no column `invoce`, which `--unique invoce` names"
    );
    assert_eq!(hint, "did you mean `invoice`?");
}

#[test]
fn a_folder_for_rejects_that_is_not_there_is_a_fault() {
    let scratch = Scratch::new();
    let file = scratch.file("list.csv", b"phone\n");
    let rejects = Some(scratch.0.path().join("none/r.csv"));
    let options = Options {
        file,
        text: text("Hi"),
        rejects,
        ..Options::default()
    };
    assert_eq!(
        scratch.fault(options).0,
        "the rejected rows cannot be written to `none/r.csv`"
    );
}

#[test]
fn a_campaign_is_named_after_the_list_and_the_text() {
    assert_eq!(campaign_name("list", None), "list");
    let name = campaign_name("list", Some("Hi"));
    assert!(name.starts_with("list-") && name.len() == 11, "{name}");
    assert_eq!(campaign_name("list", Some("Hi\n")), name);
    assert_ne!(campaign_name("list", Some("Ho")), name);
    let long = campaign_name(&"名\u{7}".repeat(300), Some("Hi"));
    assert_eq!(long.chars().count(), 100);
    assert!(!long.contains(char::is_control));
    assert_eq!(campaign_name(" ", None), "import");
}

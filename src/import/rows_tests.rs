//! Single rows: the message that each becomes, or the operator's reason.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::keys::Unique;
use super::super::reader::{Format, Next, Reader};
use super::*;

const HEADER: [&str; 4] = ["phone", "name", "city", "smsq_id"];

fn rows(header: &[&str], text: &str, unique: &Unique) -> Rows {
    let columns = Columns::find("list.csv", header, &[], None).expect("a header of the test");
    let template = Template::parse("--text", text).expect("a text of the test");
    let placeholders = columns
        .of_placeholders("list.csv", "--text", &template)
        .expect("columns of the test");
    let keys = Keys::of(unique, "list.csv", &"0123456789abcdef".repeat(4), &columns)
        .expect("keys of the test");
    let text = Text::Template {
        template: Arc::new(template),
        placeholders,
    };
    Rows::new(columns, text, keys, "CN".parse().ok(), false)
}

fn message_with(rows: &Rows, line: &str) -> Result<NewSms, String> {
    let format = Format {
        delimiter: b',',
        terminator: b'\n',
    };
    let mut reader = Reader::new(line.as_bytes(), format, 2);
    let mut record = Record::default();
    assert_eq!(reader.next(&mut record).expect("reads"), Next::Row);
    rows.message(&record)
        .map(|made| made.message)
        .map_err(|rejected| rejected.reason)
}

fn message(line: &str) -> Result<NewSms, String> {
    message_with(&rows(&HEADER, "Hi {{ name }}", &Unique::Phone), line)
}

#[test]
fn a_row_becomes_a_message() {
    let message = message("138 0013 8000, Ann ,\"Xi\"\"an\",").expect("a good row");
    assert_eq!(message.line, 2);
    assert_eq!(message.phone, "+8613800138000");
    assert_eq!(message.content, "Hi Ann");
    assert_eq!(message.params, r#"{"name":" Ann ","city":"Xi\"an"}"#);
    assert_eq!((message.segments, message.replaces), (1, None));
    assert_eq!(message.dedupe_key, "+8613800138000");
}

#[test]
fn a_row_that_cannot_is_rejected_with_what_to_do() {
    for (line, expected) in [
        (
            "13800138000,Ann",
            "too few fields: 2 where the header has 4",
        ),
        (
            "13800138000,Ann,Rome,,x",
            "too many fields: 5 where the header has 4",
        ),
        ("13800138000,A\0nn,Rome,", "`name` holds a NUL character"),
        (
            "13800138000, ,Rome,",
            "no value for `name`, and the text needs it",
        ),
        (",Ann,Rome,", "the phone is empty"),
        (
            "13800138000,Ann,Rome,x1",
            "`smsq_id` must be a number, not `x1`",
        ),
    ] {
        assert_eq!(message(line).err().as_deref(), Some(expected), "{line}");
    }
    let long = format!("13800138000,{},Rome,", "é".repeat(1_600));
    assert_eq!(
        message(&long).err().as_deref(),
        Some("the text is too long: 1603 characters of at most 1530")
    );
    assert!(
        message("1.38E+10,Ann,Rome,")
            .err()
            .is_some_and(|reason| reason.contains("scientific notation"))
    );
}

#[test]
fn a_failures_file_says_which_dead_letter_a_row_replaces() {
    assert_eq!(
        message("13800138000,Ann,Rome,17").map(|message| message.replaces),
        Ok(Some(17))
    );
}

#[test]
fn a_column_of_texts_is_taken_as_it_is() {
    let columns = Columns::find("list.csv", &["phone", "content"], &[], None).expect("a header");
    let rows = Rows::new(
        columns,
        Text::Column(1),
        Keys::Phone,
        "CN".parse().ok(),
        false,
    );
    let content = |line: &str| message_with(&rows, line).map(|message| message.content);
    assert_eq!(
        content("13800138000,Hi {{ name }}"),
        Ok("Hi {{ name }}".to_owned())
    );
    assert_eq!(
        content("13800138000,\" \"").err().as_deref(),
        Some("the text is empty")
    );
}

#[test]
fn keys_tell_messages_apart_as_asked() {
    let header = ["phone", "name", "invoice"];
    let key = |unique: &str, line: &str| {
        let Ok(unique) = unique.parse();
        message_with(&rows(&header, "Hi", &unique), line).map(|message| message.dedupe_key)
    };
    assert_eq!(
        key("none", "13800138000,Ann,7"),
        Ok("0123456789abcdef:2".to_owned())
    );
    let by_invoice = key("invoice", "13800138000,Ann,7").expect("a good row");
    assert_eq!(by_invoice.len(), 64);
    assert_eq!(key("invoice", "+86 138 0013 8001,Bob, 7 "), Ok(by_invoice));
    let by_both = key("phone,invoice", "13800138000,Ann,7");
    assert_eq!(key("phone,invoice", "+86 138 0013 8000,Bob,7"), by_both);
    assert_ne!(key("phone,invoice", "13800138001,Ann,7"), by_both);
    assert_eq!(
        key("invoice", "13800138000,Ann,").err().as_deref(),
        Some("`invoice` is empty, and `--unique` needs it")
    );
}

proptest! {
    #[test]
    fn params_are_json_that_gives_the_cells_back(name in ".{0,12}", city in "[\"\\\\\n\t,a]{0,6}") {
        prop_assume!(!name.contains('\0'));
        let rows = rows(&["phone", "name", "ci\"ty"], "Hi", &Unique::Phone);
        let params = rows.params(&["13800138000", &name, &city]);
        let back: BTreeMap<String, String> = serde_json::from_str(&params).expect("JSON of strings");
        prop_assert_eq!(back.get("name"), Some(&name));
        prop_assert_eq!(back.get("ci\"ty"), Some(&city));
        prop_assert_eq!(back.len(), 2);
    }
}

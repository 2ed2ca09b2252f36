//! Single rows: the message, or the reason of the rejection.

use std::collections::BTreeMap;

use proptest::prelude::*;
use smsq_message::phone::Dialling;

use super::super::dedupe::Unique;
use super::*;

const HEADER: [&str; 4] = ["phone", "name", "city", "smsq_id"];

fn mapper(header: &[&str], text: Option<&str>, unique: &Unique) -> RowMapper {
    let columns = ListColumns::find("list.csv", header, &[]).expect("a header");
    let hash = "0123456789abcdef".repeat(4);
    let keys = DedupeKeys::new(unique, &hash, &columns).expect("keys");
    let text = match text {
        Some(text) => {
            let template = Template::parse("--text", text).expect("a template");
            let placeholders = columns.of_placeholders(&template);
            Text::Template {
                template: Arc::new(template),
                placeholders: placeholders.expect("columns"),
            }
        }
        None => Text::Column(1),
    };
    let options = Options { dialling: Dialling::from("CN".parse().ok()), ..Options::default() };
    RowMapper::new(columns, text, keys, options)
}

fn mapped(mapper: &RowMapper, line: &str) -> Result<NewSms, String> {
    let mut record = Record::default();
    record.line = 2;
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
    let fields = reader.byte_records().next().expect("a row").expect("CSV");
    fields.iter().for_each(|field| record.push(field));
    let row = mapper.map(&record);
    row.map(|row| row.message).map_err(|rejection| rejection.reason)
}

fn message(line: &str) -> Result<NewSms, String> {
    mapped(&mapper(&HEADER, Some("Hi {{ name }}"), &Unique::Phone), line)
}

#[test]
fn row_becomes_a_message() {
    let message = message("138 0013 8000, Ann ,\"Xi\"\"an\",").expect("a good row");
    assert_eq!(message.line, 2);
    assert_eq!(message.phone, "+8613800138000");
    assert_eq!(message.content, "Hi Ann");
    assert_eq!(message.params, r#"{"name":" Ann ","city":"Xi\"an"}"#);
    assert_eq!((message.segments, message.replaces), (1, None));
    assert_eq!(message.dedupe_key, "+8613800138000");
}

#[test]
fn bad_row_is_rejected_with_a_reason() {
    for (line, expected) in [
        ("13800138000,Ann", "too few fields: 2, but the header has 4"),
        ("13800138000,Ann,Rome,,x", "too many fields: 5, but the header has 4"),
        ("13800138000,A\0nn,Rome,", "`name` has a NUL character"),
        ("13800138000, ,Rome,", "no value for `name`, and the text needs it"),
        (",Ann,Rome,", "the phone is empty"),
        ("13800138000,Ann,Rome,x1", "invalid `smsq_id`: `x1` is not a number"),
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
fn reason_shows_names_and_values_short_and_printable() {
    let long = "n".repeat(200);
    for name in ["na\u{1b}\u{202e}me", &long] {
        let mapper = mapper(&["phone", name], Some("Hi"), &Unique::Phone);
        let reason = mapped(&mapper, "13800138000,A\0nn").err().expect("NUL");
        assert!(reason.chars().all(smsq_message::text::is_printable), "{reason:?}");
        assert!(reason.len() < 120, "{reason}");
    }
    let reason = message(&format!("13800138000,Ann,Rome,{}", "x".repeat(500)));
    assert!(reason.err().is_some_and(|reason| reason.len() < 140));
}

#[test]
fn row_of_a_failures_file_names_the_failed_message() {
    assert_eq!(message("13800138000,Ann,Rome,17").map(|message| message.replaces), Ok(Some(17)));
}

#[test]
fn content_column_is_sent_unchanged() {
    let mapper = mapper(&["phone", "content"], None, &Unique::Phone);
    let content = |line: &str| mapped(&mapper, line).map(|message| message.content);
    assert_eq!(content("13800138000,Hi {{ name }}"), Ok("Hi {{ name }}".to_owned()));
    assert_eq!(content("13800138000,\" \"").err().as_deref(), Some("the text is empty"));
}

#[test]
fn keys_depend_on_unique() {
    let header = ["phone", "name", "invoice"];
    let key = |unique: &str, line: &str| {
        let Ok(unique) = unique.parse();
        mapped(&mapper(&header, Some("Hi"), &unique), line).map(|message| message.dedupe_key)
    };
    assert_eq!(key("none", "13800138000,Ann,7"), Ok("0123456789abcdef:2".to_owned()));
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
    fn params_are_json_of_the_cells(name in ".{0,12}", city in "[\"\\\\\n\t,a]{0,6}") {
        prop_assume!(!name.contains('\0'));
        let mapper = mapper(&["phone", "name", "ci\"ty"], Some("Hi"), &Unique::Phone);
        let params = mapper.params(&["13800138000", &name, &city]);
        let back: BTreeMap<String, String> = serde_json::from_str(&params).expect("JSON of strings");
        prop_assert_eq!(back.get("name"), Some(&name));
        prop_assert_eq!(back.get("ci\"ty"), Some(&city));
        prop_assert_eq!(back.len(), 2);
    }
}

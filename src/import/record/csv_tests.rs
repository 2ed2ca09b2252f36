//! Rows, malformed lines, and stray quotes.

use proptest::prelude::*;

use super::*;

const COMMA: CsvFormat = CsvFormat { delimiter: b',', terminator: b'\n' };

/// Returns a few bytes at a time, so that rows meet the end of the buffer.
struct Drip<'t>(&'t [u8], usize);

impl Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.1.min(self.0.len()).min(buffer.len());
        buffer[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

type Row = (u64, Result<Vec<String>, Malformed>);

fn read(text: &str, width: Option<usize>) -> Vec<Row> {
    read_in(text, width, 7)
}

fn read_in(text: &str, width: Option<usize>, piece: usize) -> Vec<Row> {
    let mut reader = CsvReader::new(Drip(text.as_bytes(), piece), COMMA);
    reader.width = width;
    let mut record = Record::default();
    let mut rows = Vec::new();
    loop {
        let fields = |record: &Record| -> Vec<String> {
            record.fields().expect("UTF-8").map(str::to_owned).collect()
        };
        match reader.next(&mut record).expect("reads") {
            Next::Row => rows.push((record.line, Ok(fields(&record)))),
            Next::Malformed(why) => {
                assert_eq!(record.len(), 1);
                rows.push((record.line, Err(why)));
            }
            Next::Unusable(why) => panic!("separated values know no such thing: {why:?}"),
            Next::End => break,
        }
    }
    rows
}

fn row(line: u64, fields: &[&str]) -> Row {
    (line, Ok(fields.iter().map(|&field| field.to_owned()).collect()))
}

#[test]
fn rows_have_the_line_where_they_start() {
    let text = "a,b\r\n\n1,\"x\ny\"\r\n\r\n2,\"say \"\"hi\"\"\"\n,";
    assert_eq!(
        read(text, Some(2)),
        [
            row(1, &["a", "b"]),
            row(3, &["1", "x\ny"]),
            row(6, &["2", "say \"hi\""]),
            row(7, &["", ""])
        ]
    );
}

#[test]
fn quote_inside_a_plain_field_is_text() {
    assert_eq!(read("5\" pipe,x\n", Some(2)), [row(1, &["5\" pipe", "x"])]);
}

#[test]
fn stray_quote_rejects_only_its_line() {
    let never_closed = "p,n\n1,\"Ann\n2,Bob\n3,Cid\n";
    assert_eq!(
        read(never_closed, Some(2)),
        [
            row(1, &["p", "n"]),
            (2, Err(Malformed::OpenQuote)),
            row(3, &["2", "Bob"]),
            row(4, &["3", "Cid"])
        ]
    );
    let closed_by_another = "1,\"Ann\n2,\"Bob\"\n3,Cid\n";
    assert_eq!(
        read(closed_by_another, Some(2)),
        [(1, Err(Malformed::TextAfterQuote)), row(2, &["2", "Bob"]), row(3, &["3", "Cid"])]
    );
    let swallowing_whole_rows = "1,\"Ann\n2,\"\n3,Cid\n";
    assert_eq!(
        read(swallowing_whole_rows, Some(3)),
        [(1, Err(Malformed::OpenQuote)), (2, Err(Malformed::OpenQuote)), row(3, &["3", "Cid"])]
    );
}

#[test]
fn row_without_end_is_rejected_in_bounded_memory() {
    let text = format!("{}\n1,2\n", "x".repeat(300_000));
    assert_eq!(read(&text, Some(2)), [(1, Err(Malformed::TooLong)), row(2, &["1", "2"])]);
    let text = format!("1,\"{}\n1,2\n", "x\n".repeat(100_000));
    let rows = read(&text, Some(2));
    assert_eq!(rows[0], (1, Err(Malformed::OpenQuote)));
    assert_eq!(rows.len(), 100_001);
}

#[test]
fn long_quoted_row_is_one_row() {
    let line = "+447400301999,Eve\n";
    for before in ["note:\n".to_owned(), "x".repeat(100_000)] {
        for length in [4_000, 80_000] {
            let long = format!("1,\"{before}\n{}\"\n2,b\n", line.repeat(length));
            let rows = read_in(&long, Some(2), 50_000);
            assert_eq!(rows.len(), 2);
            assert_eq!(rows[0], (1, Err(Malformed::TooLong)));
            assert_eq!(rows[1].1, Ok(vec!["2".to_owned(), "b".to_owned()]));
        }
    }
    let long = format!("{},\"x\n{line}\"\n", "x".repeat(100_000));
    assert_eq!(read_in(&long, Some(2), 50_000), [(1, Err(Malformed::TooLong))]);
}

#[test]
fn row_above_64_kib_is_rejected_at_any_buffer_end() {
    for length in [63_000, 65_000, 66_000, 90_000, 130_000] {
        for before in [0, 1_000, 40_000] {
            let filler = "a,b\n".repeat(before / 4);
            let text = format!("{filler}1,\"\n{}\"\n", "x".repeat(length));
            let rows = read_in(&text, Some(2), 64 * 1024);
            let last = &rows.last().expect("a row").1;
            assert_eq!(last.is_ok(), length < 65_500, "{length} after {before}");
        }
    }
}

#[test]
fn lines_can_end_with_a_carriage_return() {
    let format = CsvFormat { delimiter: b';', terminator: b'\r' };
    let mut reader = CsvReader::new(&b"a;b\r1;2\r"[..], format);
    let mut record = Record::default();
    for expected in [["a", "b"], ["1", "2"]] {
        assert_eq!(reader.next(&mut record).expect("reads"), Next::Row);
        assert!(record.fields().expect("UTF-8").eq(expected));
    }
}

proptest! {
    #[test]
    fn rows_of_a_csv_writer_are_read_unchanged(
        rows in prop::collection::vec(prop::collection::vec("[a,;\"\n\r 中\u{0}]{0,6}", 3), 1..8),
    ) {
        let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
        for row in &rows {
            writer.write_record(row).expect("writes to memory");
        }
        let bytes = writer.into_inner().expect("writes to memory");
        let text = String::from_utf8(bytes).expect("UTF-8");
        let back: Vec<Vec<String>> = read(&text, Some(3)).into_iter().map(|(_, row)| row.expect("well formed")).collect();
        prop_assert_eq!(back, rows);
    }

    #[test]
    fn every_line_of_any_text_is_read_once(text in "[a,\"\n]{0,60}", width in 1usize..4) {
        let rows = read(&text, Some(width));
        let mut last = 0;
        for (line, _) in rows {
            prop_assert!(line > last);
            last = line;
        }
    }
}

#[test]
fn only_a_delimiter_is_declared() {
    for (line, delimiter) in [
        ("sep=;\r\n", Some(b';')),
        ("SEP=\t", Some(b'\t')),
        ("sep=\n", Some(b'\t')),
        ("sep=\"\n", None),
        ("sep=1\n", None),
        ("sep=\u{1b}\n", None),
        ("sep=;;\n", None),
    ] {
        assert_eq!(declared_delimiter(line.as_bytes()), delimiter, "{line:?}");
    }
}

//! A list of which only the phones are read, as suppression lists are: any file that can be imported.
//! A row with a phone is taken whatever its other fields are.

use std::path::PathBuf;

use tokio::sync::mpsc;

use super::error::ImportError;
use super::header::{self, Header};
use super::input::Input;
use super::interpretation::{Interpretation, interpretation};
use super::pipeline::streamed;
use super::plan::{Options, open};
use super::reader::{Next, Record};
use super::rejection::Rejection;
use super::rejects::{self, Rejects, Row};
use super::source::Source;
use crate::phone::{Phone, PhoneError, Region};

/// Rows of one batch.
const BATCH: usize = 20_000;

/// A file of phones that was opened and understood.
#[derive(Debug)]
pub struct PhoneList {
    source: Source,
    header: Header,
    region: Option<Region>,
    rejects: PathBuf,
}

/// Some consecutive rows of a file.
#[derive(Debug, Default)]
pub struct Phones {
    pub found: Vec<Phone>,
    /// Rows that have a phone.
    pub rows: u64,
    /// The rows without a phone, and why: line and reason.
    pub rejected: Vec<(u64, String)>,
}

impl PhoneList {
    /// Opens a file; of `options`, only what says how to read it counts.
    pub fn open(options: Options) -> Result<Self, ImportError> {
        let source = open(&options)?;
        let find = |asked: &[(String, String)]| Header::find(&source, asked, options.region);
        let phone = |column: String| [("phone".to_owned(), column)];
        let header = match find(&options.columns) {
            // A column of phones is meant by any name; without a header, the first column is.
            Err(ImportError::NoPhone {
                likely: Some(column),
                ..
            }) if options.columns.is_empty() => find(&phone(column)),
            Err(ImportError::NoHeader { .. }) if options.columns.is_empty() => {
                find(&phone("1".to_owned()))
            }
            found => found,
        }?;
        let rejects = rejects::place_for(options.rejects, &source)?;
        Ok(Self {
            source,
            header,
            region: options.region,
            rejects,
        })
    }

    /// How the list was understood.
    pub fn interpretation(&self) -> Interpretation {
        interpretation(&self.source, &self.header, String::new())
    }

    /// Reads the phones into `sink`; returns where the rows without one are, if there are any.
    pub async fn read<E: From<ImportError>>(
        &self,
        sink: impl AsyncFnMut(Phones) -> Result<(), E>,
    ) -> Result<Option<PathBuf>, E> {
        let input = self.source.rows().map_err(|source| self.fault(source))?;
        let reading = Reading {
            file: self.source.name.clone(),
            input,
            header: self.header.clone(),
            region: self.region,
            rejects: Rejects::new(self.rejects.clone(), &self.source, &self.header),
        };
        let rejects = streamed(move |batches| reading.run(batches), sink).await?;
        Ok(rejects.finish()?)
    }

    fn fault(&self, source: std::io::Error) -> ImportError {
        ImportError::Read {
            file: self.source.name.clone(),
            source,
        }
    }
}

struct Reading {
    file: String,
    input: Input,
    header: Header,
    region: Option<Region>,
    rejects: Rejects,
}

impl Reading {
    fn run(mut self, batches: &mpsc::Sender<Phones>) -> Result<Rejects, ImportError> {
        let mut record = Record::default();
        let mut batch = Phones::default();
        let skipped = header::skip(&mut self.input, self.header.skipped);
        skipped.map_err(|source| self.fault(source))?;
        self.input.expect_width(self.header.columns.names.len());
        loop {
            let next = self.input.next(&mut record);
            let next = next.map_err(|source| self.fault(source))?;
            let fields: Vec<&[u8]> = record.raw().collect();
            let (row, found) = match next {
                Next::End => break,
                Next::Malformed(why) => {
                    let text = fields.first().copied().unwrap_or_default();
                    (Row::Text(text), Err(why.into()))
                }
                Next::Unusable(why) => (Row::Fields(fields), Err(why)),
                Next::Row => (Row::Fields(fields), self.phones(&record)),
            };
            match found {
                Ok(phones) => {
                    batch.found.extend(phones);
                    batch.rows += 1;
                }
                Err(Rejection { reason, .. }) => {
                    self.rejects.add(record.line, &reason, &row)?;
                    batch.rejected.push((record.line, reason));
                }
            }
            if batch.found.len() + batch.rejected.len() >= BATCH
                && batches.blocking_send(std::mem::take(&mut batch)).is_err()
            {
                return Ok(self.rejects);
            }
        }
        // Nobody listens any more where the last one was not taken.
        let _ = batches.blocking_send(batch);
        Ok(self.rejects)
    }

    /// All phones of a row; where it has none, what is wrong with the first that is there.
    fn phones(&self, record: &Record) -> Result<Vec<Phone>, Rejection> {
        let Some(fields) = record.fields() else {
            return Err(Rejection::new(
                "another encoding",
                "the row has broken characters",
            ));
        };
        let cells: Vec<&str> = fields.collect();
        let mut phones = Vec::new();
        let mut fault = PhoneError::Empty;
        for &column in &self.header.columns.phones {
            match Phone::parse(cells.get(column).copied().unwrap_or_default(), self.region) {
                Ok(phone) => phones.push(phone),
                Err(error) if fault == PhoneError::Empty => fault = error,
                Err(_) => {}
            }
        }
        if phones.is_empty() {
            return Err(fault.into());
        }
        Ok(phones)
    }

    fn fault(&self, source: std::io::Error) -> ImportError {
        ImportError::Read {
            file: self.file.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(
        bytes: &[u8],
        columns: &[(&str, &str)],
    ) -> Result<(Vec<String>, Vec<u64>, String), ImportError> {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let file = folder.path().join("stop.csv");
        std::fs::write(&file, bytes).expect("writes");
        let asked = columns.iter();
        let list = PhoneList::open(Options {
            file,
            columns: asked
                .map(|(role, column)| (role.to_string(), column.to_string()))
                .collect(),
            rejects: Some(folder.path().join("rejects.csv")),
            ..Options::default()
        })?;
        let (mut phones, mut lines) = (Vec::new(), Vec::new());
        let rejects = list
            .read(async |batch: Phones| {
                phones.extend(batch.found.into_iter().map(Phone::into_string));
                lines.extend(batch.rejected.into_iter().map(|(line, _)| line));
                Ok::<(), ImportError>(())
            })
            .await?;
        let kept = rejects.map(|path| std::fs::read_to_string(path).expect("the file"));
        Ok((phones, lines, kept.unwrap_or_default()))
    }

    #[tokio::test]
    async fn rows_without_a_phone_cost_no_other() {
        let long = "9".repeat(10_000);
        let text = format!(
            "\u{feff}Phone;reason\n+447400123451;stop\n\n\"+447400123452\"\n12\n{long}\n+447400123453"
        );
        let (phones, lines, kept) = read(text.as_bytes(), &[]).await.expect("a list");
        assert_eq!(phones, ["+447400123451", "+447400123452", "+447400123453"]);
        assert_eq!(lines, [5, 6]);
        let header = "\u{feff}Phone;reason;smsq_text;smsq_line;smsq_reason\n;;12;5;";
        assert!(kept.starts_with(header), "{kept}");
    }

    #[tokio::test]
    async fn more_rows_than_a_batch_are_all_read() {
        let lines = (0..BATCH as u64 * 2 + 7).map(|n| format!("+861380{n:07}\n"));
        let text = lines.collect::<String>();
        let (phones, rejected, _) = read(text.as_bytes(), &[]).await.expect("a list");
        assert_eq!((phones.len(), rejected.len()), (BATCH * 2 + 7, 0));
    }

    #[tokio::test]
    async fn lists_are_read_as_import_reads_them() {
        let list = "姓名;手机号\n\"王;小明\";+8613800138000\n";
        let gb18030: super::super::Encoding = "gb18030".parse().expect("an encoding");
        let utf16: super::super::Encoding = "utf-16".parse().expect("an encoding");
        let wide = [utf16.mark(), &utf16.encode(list.as_bytes())].concat();
        for bytes in [
            gb18030.encode(list.as_bytes()),
            wide,
            list.as_bytes().to_vec(),
        ] {
            let (phones, _, _) = read(&bytes, &[]).await.expect("a list");
            assert_eq!(phones, ["+8613800138000"]);
        }
    }

    #[tokio::test]
    async fn the_phone_column_is_found_or_named() {
        let list = b"customer,opted out,at home\nAnn,+447400123451,+442079460001\n";
        let error = read(list, &[]).await.expect_err("two columns of phones");
        assert!(matches!(error, ImportError::NoPhone { .. }), "{error}");
        let both = [("phone", "opted out,at home")];
        let (phones, _, _) = read(list, &both).await.expect("a list");
        assert_eq!(phones, ["+447400123451", "+442079460001"]);
        let list = b"customer,opted out\nAnn,+447400123451\n";
        assert_eq!(read(list, &[]).await.expect("a list").0, ["+447400123451"]);
        let list = b"+447400123451\n12\n13\nunknown\n";
        let (phones, lines, _) = read(list, &[]).await.expect("a list");
        assert_eq!((phones.len(), lines), (1, vec![2, 3, 4]));
    }
}

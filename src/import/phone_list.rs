//! Reads only the phones of a list, such as a suppression list. Other fields of a row are not checked.

use std::path::PathBuf;

use tokio::sync::mpsc;

use super::error::ImportError;
use super::file::ListFile;
use super::header::Header;
use super::interpretation::Interpretation;
use super::pipeline::stream_from;
use super::plan::Options;
use super::record::{Next, Record, RecordReader};
use super::rejection::Rejection;
use super::rejects_file::{self, RejectedRow, RejectsFile};
use crate::phone::{Phone, PhoneError, Region};

/// The most phones and rejected rows of a batch.
const MAX_BATCH: usize = 20_000;

/// An opened list of phones.
#[derive(Debug)]
pub struct PhoneList {
    list: ListFile,
    header: Header,
    region: Option<Region>,
    rejects: PathBuf,
}

/// The phones of consecutive rows.
#[derive(Debug, Default)]
pub struct PhoneBatch {
    pub phones: Vec<Phone>,
    /// Rows with a phone.
    pub rows: u64,
    /// The lines of rows without a phone, and the reasons.
    pub rejected: Vec<(u64, String)>,
}

impl PhoneList {
    /// Opens a file. Of `options`, only those that say how to read it are used.
    pub fn open(options: Options) -> Result<Self, ImportError> {
        let list = ListFile::open(&options.file, options.read_options())?;
        let find = |roles: &[(String, String)]| Header::find(&list, roles, options.region);
        let phone = |column: String| [("phone".to_owned(), column)];
        let is_automatic = options.columns.is_empty();
        let header = match find(&options.columns) {
            Err(ImportError::NoPhone {
                likely: Some(column),
                ..
            }) if is_automatic => find(&phone(column)),
            Err(ImportError::NoHeader { .. }) if is_automatic => find(&phone("1".to_owned())),
            found => found,
        }?;
        Ok(Self {
            rejects: rejects_file::path_for(options.rejects, &list)?,
            region: options.region,
            header,
            list,
        })
    }

    /// Describes how the list is read.
    pub fn interpretation(&self) -> Interpretation {
        Interpretation::new(&self.list, &self.header, String::new())
    }

    /// Reads the phones into `sink`; returns the path of the rejects file, if there is one.
    pub async fn read<E: From<ImportError>>(
        &self,
        sink: impl AsyncFnMut(PhoneBatch) -> Result<(), E>,
    ) -> Result<Option<PathBuf>, E> {
        let reading = Reading {
            records: self.header.records(&self.list)?,
            columns: self.header.columns.phones.clone(),
            region: self.region,
            rejects: RejectsFile::new(self.rejects.clone(), &self.list, &self.header),
        };
        let rejects = stream_from(move |batches| reading.run(batches), sink).await?;
        Ok(rejects.finish()?)
    }
}

struct Reading {
    records: RecordReader,
    columns: Vec<usize>,
    region: Option<Region>,
    rejects: RejectsFile,
}

impl Reading {
    fn run(mut self, batches: &mpsc::Sender<PhoneBatch>) -> Result<RejectsFile, ImportError> {
        let mut record = Record::default();
        let mut batch = PhoneBatch::default();
        loop {
            let next = self.records.next(&mut record)?;
            let phones = match &next {
                Next::Row => self.phones(&record),
                Next::Malformed(why) => Err((*why).into()),
                Next::Unusable(why) => Err(why.clone()),
                Next::End => break,
            };
            match phones {
                Ok(phones) => {
                    batch.phones.extend(phones);
                    batch.rows += 1;
                }
                Err(Rejection { reason, .. }) => {
                    let row = RejectedRow::new(&next, &record);
                    self.rejects.add(record.line, &reason, &row)?;
                    batch.rejected.push((record.line, reason));
                }
            }
            if batch.phones.len() + batch.rejected.len() >= MAX_BATCH
                && batches.blocking_send(std::mem::take(&mut batch)).is_err()
            {
                return Ok(self.rejects);
            }
        }
        // If the receiver is closed, the import has failed and the batch is not needed.
        let _ = batches.blocking_send(batch);
        Ok(self.rejects)
    }

    /// Returns all phones of a row, or what is wrong with the first one.
    fn phones(&self, record: &Record) -> Result<Vec<Phone>, Rejection> {
        let Some(fields) = record.fields() else {
            let reason = "the row has broken characters";
            return Err(Rejection::new("other encoding", reason));
        };
        let cells: Vec<&str> = fields.collect();
        let mut phones = Vec::new();
        let mut invalid = PhoneError::Empty;
        for &column in &self.columns {
            let cell = cells.get(column).copied().unwrap_or_default();
            match Phone::parse(cell, self.region) {
                Ok(phone) => phones.push(phone),
                Err(error) if invalid == PhoneError::Empty => invalid = error,
                Err(_) => {}
            }
        }
        if phones.is_empty() {
            return Err(invalid.into());
        }
        Ok(phones)
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
            .read(async |batch: PhoneBatch| {
                phones.extend(batch.phones.into_iter().map(Phone::into_string));
                lines.extend(batch.rejected.into_iter().map(|(line, _)| line));
                Ok::<(), ImportError>(())
            })
            .await?;
        let kept = rejects.map(|path| std::fs::read_to_string(path).expect("the file"));
        Ok((phones, lines, kept.unwrap_or_default()))
    }

    #[tokio::test]
    async fn rows_without_a_phone_are_rejected() {
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
    async fn several_batches_are_read() {
        let lines = (0..MAX_BATCH as u64 * 2 + 7).map(|n| format!("+861380{n:07}\n"));
        let text = lines.collect::<String>();
        let (phones, rejected, _) = read(text.as_bytes(), &[]).await.expect("a list");
        assert_eq!((phones.len(), rejected.len()), (MAX_BATCH * 2 + 7, 0));
    }

    #[tokio::test]
    async fn phone_lists_have_any_encoding() {
        let list = "姓名;手机号\n\"王;小明\";+8613800138000\n";
        let gb18030: crate::import::Encoding = "gb18030".parse().expect("an encoding");
        let utf16: crate::import::Encoding = "utf-16".parse().expect("an encoding");
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
    async fn phone_column_is_found_or_named() {
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

//! Reads only the phones of a list, such as a suppression list. Other fields of a row are not checked.

use std::path::PathBuf;

use smsq_message::phone::{Dialling, Phone};
use smsq_process::jobs::Until;

use super::columns::ListColumns;
use super::error::{ImportError, Rejection};
use super::file::ListFile;
use super::header::{Header, Interpretation};
use super::options::Options;
use super::pipeline::{self, ParsedBatch, Task};
use super::record::Record;
use super::rejects_file::{self, RejectsFile};

/// An opened list of phones.
#[derive(Debug)]
pub struct PhoneList {
    list: ListFile,
    header: Header,
    dialling: Dialling,
    rejects: PathBuf,
}

impl PhoneList {
    /// Opens a file. Of `options`, only those that say how to read it are used.
    pub fn open(options: &Options) -> Result<Self, ImportError> {
        let list = ListFile::open(options)?;
        let find = |roles: &[(String, String)]| Header::find(&list, roles, options.dialling);
        let find_column = |column: &str| find(&[("phone".to_owned(), column.to_owned())]);
        let header = match find(&options.columns) {
            Err(ImportError::NoPhone { likely: Some(column), .. })
                if options.columns.is_empty() =>
            {
                find_column(&column)
            }
            Err(ImportError::NoHeader { .. }) if options.columns.is_empty() => find_column("1"),
            found => found,
        }?;
        Ok(Self {
            rejects: rejects_file::path_for(options.rejects.as_ref(), &list)?,
            dialling: header.detect_numbers(&list, options.dialling)?,
            header,
            list,
        })
    }

    /// Describes how the list is read.
    pub fn interpretation(&self) -> Interpretation {
        self.header.interpretation(&self.list, String::new())
    }

    /// Reads the phones of the rows into `sink`; returns the path of the rejects file, if there is one.
    pub async fn read<E: From<ImportError>>(
        &self,
        sink: impl AsyncFnMut(ParsedBatch<Vec<Phone>>) -> Result<(), E>,
    ) -> Result<Option<PathBuf>, E> {
        let rejects = RejectsFile::new(self.rejects.clone(), &self.list, &self.header);
        let (columns, dialling) = (self.header.columns.clone(), self.dialling);
        let task = Task {
            records: self.header.records(&self.list)?,
            map: Box::new(move |record| Ok((phones_of(record, &columns, dialling)?, 0))),
            rejects: Some(rejects),
            until: Until::default(),
        };
        Ok(match pipeline::stream(task, sink).await? {
            Some(rejects) => rejects.finish()?,
            None => None,
        })
    }
}

/// Returns all valid phones of a row.
fn phones_of(
    record: &Record,
    columns: &ListColumns,
    dialling: Dialling,
) -> Result<Vec<Phone>, Rejection> {
    let Some(fields) = record.fields() else {
        let reason = "the row has broken characters";
        return Err(Rejection::new("other encoding", reason));
    };
    let cells: Vec<&str> = fields.collect();
    Ok(columns.parse_phones(&cells, dialling)?)
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
        let list = PhoneList::open(&Options {
            file,
            columns: asked.map(|(role, column)| (role.to_string(), column.to_string())).collect(),
            rejects: Some(folder.path().join("rejects.csv")),
            ..Options::default()
        })?;
        let (mut phones, mut lines) = (Vec::new(), Vec::new());
        let rejects = list
            .read(async |batch: ParsedBatch<Vec<Phone>>| {
                let read = batch.rows.into_iter().flatten();
                phones.extend(read.map(Phone::into_string));
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
        let count = usize::try_from(pipeline::MAX_ROWS).expect("a count") * 2 + 7;
        let lines = (0..count).map(|n| format!("+861380{n:07}\n"));
        let text = lines.collect::<String>();
        let (phones, rejected, _) = read(text.as_bytes(), &[]).await.expect("a list");
        assert_eq!((phones.len(), rejected.len()), (count, 0));
    }

    #[tokio::test]
    async fn phone_lists_have_any_encoding() {
        let list = "姓名;手机号\n\"王;小明\";+8613800138000\n";
        let gb18030: crate::encoding::Encoding = "gb18030".parse().expect("an encoding");
        let utf16: crate::encoding::Encoding = "utf-16".parse().expect("an encoding");
        let wide = [utf16.mark(), &utf16.encode(list.as_bytes())].concat();
        for bytes in [gb18030.encode(list.as_bytes()), wide, list.as_bytes().to_vec()] {
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

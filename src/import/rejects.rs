//! The rejected rows, in a file that can be fixed and imported: in the encoding of the list and with its
//! delimiter, with line and reason. Every row has all columns, so that a spreadsheet can save it. The
//! file appears whole or not at all, and never takes another file's place.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::encoding::Encoding;
use super::error::ImportError;
use super::header::Header;
use super::source::{Form, Source};
use crate::text::spreadsheet::{guarded, is_guarded};

/// The columns that a rejects file adds. A row that cannot be split into the list's columns is in
/// [`TEXT`], and its own columns are empty. The last column always has a value, because spreadsheets
/// leave out empty fields at the end of a row.
const ADDED: [&str; 3] = [TEXT, "smsq_line", "smsq_reason"];
pub(super) const TEXT: &str = "smsq_text";

/// The longest text of a row in [`TEXT`], in bytes.
const LONGEST_TEXT: usize = 4 * 1024;

/// A rejects file that exists once there is something to put into it.
pub(super) struct Rejects {
    wanted: PathBuf,
    style: Style,
    encoding: Encoding,
    is_marked: bool,
    header: Vec<String>,
    kept: Vec<usize>,
    /// Where the list has the text of rows that an earlier rejects file could not split.
    text: Option<usize>,
    /// The list's cells are guarded against formulas.
    is_guarded: bool,
    started: Option<Started>,
}

/// How a row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// With this between the fields.
    Separated(u8),
    JsonLines,
}

struct Started {
    /// The file until it is complete; `None`: a device, which is written to at once.
    part: Option<PathBuf>,
    file: BufWriter<Box<dyn Write + Send>>,
}

/// What was read of a rejected row.
pub(super) enum Row<'r> {
    /// Its fields.
    Fields(Vec<&'r [u8]>),
    /// Its text, which has no fields.
    Text(&'r [u8]),
}

impl Rejects {
    /// For the rows of `source`, which go to `wanted`.
    pub(super) fn new(wanted: PathBuf, source: &Source, header: &Header) -> Self {
        let style = match &source.form {
            Form::Separated(format) => Style::Separated(format.delimiter),
            Form::Sheet(_) => Style::Separated(b','),
            Form::JsonLines(_) => Style::JsonLines,
        };
        let names = &header.columns.names;
        let mut rejects = Self::written(wanted, style, source.encoding, source.is_marked, names);
        rejects.is_guarded = header.is_guarded;
        rejects
    }

    fn written(
        wanted: PathBuf,
        style: Style,
        encoding: Encoding,
        is_marked: bool,
        header: &[String],
    ) -> Self {
        let kept = (0..header.len())
            .filter(|&column| !ADDED.contains(&header[column].as_str()))
            .collect();
        Self {
            wanted,
            style,
            encoding,
            is_marked,
            header: header.to_vec(),
            kept,
            text: header.iter().position(|name| name == TEXT),
            is_guarded: false,
            started: None,
        }
    }

    /// Adds a row. One that has as many fields as the header keeps them, without what an earlier rejects
    /// file added; any other goes into [`TEXT`], so that it is rejected again until its columns are
    /// filled in.
    pub(super) fn add(
        &mut self,
        line: u64,
        reason: &str,
        row: &Row<'_>,
    ) -> Result<(), ImportError> {
        let (mut cells, text) = match row {
            Row::Fields(fields) if fields.len() == self.header.len() => {
                let kept = self.kept.iter().map(|&column| self.bare(fields[column]));
                let text = self.text.map(|column| self.bare(fields[column]));
                (kept.collect(), Cow::Borrowed(text.unwrap_or_default()))
            }
            Row::Fields(fields) => (vec![&b""[..]; self.kept.len()], self.joined(fields)),
            Row::Text(text) => (vec![&b""[..]; self.kept.len()], cut(text)),
        };
        let line = line.to_string();
        cells.extend([&*text, line.as_bytes(), reason.as_bytes()]);
        let text = match self.style {
            Style::Separated(delimiter) => separated(&cells, delimiter),
            Style::JsonLines => Ok(self.object(&cells)),
        };
        text.and_then(|text| self.write(&text))
            .map_err(|source| self.error(source))
    }

    /// The cell as it was before it was guarded.
    fn bare<'c>(&self, cell: &'c [u8]) -> &'c [u8] {
        &cell[usize::from(self.is_guarded && is_guarded(cell))..]
    }

    /// The fields of a row as one text.
    fn joined(&self, fields: &[&[u8]]) -> Cow<'static, [u8]> {
        let delimiter = match self.style {
            Style::Separated(delimiter) => delimiter,
            Style::JsonLines => b',',
        };
        let fields: Vec<&[u8]> = fields.iter().map(|field| self.bare(field)).collect();
        let mut text = csv_line(&fields, delimiter).unwrap_or_default();
        text.truncate(text.trim_ascii_end().len());
        Cow::Owned(cut(&text).into_owned())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let kept = self.kept.iter().map(|&column| self.header[column].as_str());
        kept.chain(ADDED)
    }

    /// A line that has no fields has its text in the object, and no empty columns.
    fn object(&self, row: &[&[u8]]) -> Vec<u8> {
        let place = self.kept.len();
        let has_text = !row[place].is_empty();
        let is_written = |(column, (_, cell)): &(usize, (&str, &&[u8]))| {
            *column > place || (!cell.is_empty() || !has_text && *column < place)
        };
        let cells = self.names().zip(row).enumerate().filter(is_written);
        let object: serde_json::Map<String, serde_json::Value> = cells
            .map(|(_, (name, cell))| {
                let cell = String::from_utf8_lossy(cell).into_owned();
                (name.to_owned(), cell.into())
            })
            .collect();
        format!("{}\n", serde_json::Value::from(object)).into_bytes()
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let mut started = match self.started.take() {
            Some(started) => started,
            None => self.start()?,
        };
        let written = started.file.write_all(&self.encoding.encode(text));
        self.started = Some(started);
        written
    }

    fn start(&self) -> io::Result<Started> {
        let (part, target) = if let Some(device) = device(&self.wanted)? {
            (None, device)
        } else {
            let (part, file) = part_of(&self.wanted)?;
            (Some(part), Box::new(file) as Box<dyn Write + Send>)
        };
        let mut file = BufWriter::new(target);
        if self.is_marked {
            file.write_all(self.encoding.mark())?;
        }
        if let Style::Separated(delimiter) = self.style {
            let header: Vec<&[u8]> = self.names().map(str::as_bytes).collect();
            file.write_all(&self.encoding.encode(&separated(&header, delimiter)?))?;
        }
        Ok(Started { part, file })
    }

    /// Puts the file in its place, or beside it with a number where the place is taken by another one.
    /// `None` where no row was rejected, or where they went to a device.
    pub(super) fn finish(mut self) -> Result<Option<PathBuf>, ImportError> {
        let Some(mut started) = self.started.take() else {
            return Ok(None);
        };
        let placed = started.file.flush().and_then(|()| match &started.part {
            Some(part) => place(part, &self.wanted).map(Some),
            None => Ok(None),
        });
        if placed.is_err() {
            started.remove();
        }
        placed.map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> ImportError {
        ImportError::Rejects {
            file: self.wanted.clone(),
            source,
        }
    }
}

impl Started {
    fn remove(&self) {
        if let Some(part) = &self.part {
            let _ = std::fs::remove_file(part);
        }
    }
}

/// An import that failed leaves nothing behind: the next one finds the same rows again.
impl Drop for Rejects {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            started.remove();
        }
    }
}

/// Where the rejects of a file go; fails where they cannot go there.
pub(super) fn place_for(asked: Option<PathBuf>, source: &Source) -> Result<PathBuf, ImportError> {
    if let Some(asked) = &asked {
        check_file(asked)?;
    }
    let place = asked.unwrap_or_else(|| default_place(source));
    check_place(&place)?;
    Ok(place)
}

/// Where the rejects of a file go if nobody says: the current folder, under the file's own name.
fn default_place(source: &Source) -> PathBuf {
    let stem = source.stem.strip_suffix(".rejects").unwrap_or(&source.stem);
    let ending = match source.form {
        Form::JsonLines(_) => "jsonl",
        Form::Separated(_) | Form::Sheet(_) => "csv",
    };
    PathBuf::from(format!("{stem}.rejects.{ending}"))
}

/// Whether `--rejects` names standard output.
pub fn is_stdout(wanted: &Path) -> bool {
    let names = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    names.iter().any(|name| wanted == Path::new(name))
}

/// What to write to where `wanted` is not a file: standard output, a device, a pipe.
pub(super) fn device(wanted: &Path) -> io::Result<Option<Box<dyn Write + Send>>> {
    if is_stdout(wanted) {
        return Ok(Some(Box::new(io::stdout())));
    }
    if !is_device(wanted) {
        return Ok(None);
    }
    let device = File::options().append(true).open(wanted)?;
    Ok(Some(Box::new(device)))
}

fn is_device(wanted: &Path) -> bool {
    let is_handle = ["/dev/fd", "/dev/stderr", "/proc/self/fd"]
        .iter()
        .any(|handle| wanted.starts_with(handle));
    let is_other = |found: std::fs::Metadata| !found.is_file() && !found.is_dir();
    is_handle || is_stdout(wanted) || std::fs::metadata(wanted).is_ok_and(is_other)
}

/// A new file beside `wanted`, until it is complete.
fn part_of(wanted: &Path) -> io::Result<(PathBuf, File)> {
    let part = beside(wanted, &format!(".{:08x}.part", rand::random::<u32>()));
    let file = private(&part)?;
    Ok((part, file))
}

/// The row with its cells guarded against formulas.
fn separated(row: &[&[u8]], delimiter: u8) -> io::Result<Vec<u8>> {
    let guarded: Vec<Cow<'_, [u8]>> = row.iter().map(|cell| guarded(cell)).collect();
    csv_line(&guarded, delimiter)
}

/// As much of a row's text as tells which one it was; what is cut off is in the list.
fn cut(text: &[u8]) -> Cow<'_, [u8]> {
    if text.len() <= LONGEST_TEXT {
        return Cow::Borrowed(text);
    }
    let is_start = |&at: &usize| text[at] & 0xc0 != 0x80;
    let end = (0..=LONGEST_TEXT).rev().find(is_start).unwrap_or(0);
    Cow::Owned([&text[..end], "…".as_bytes()].concat())
}

fn csv_line(row: &[impl AsRef<[u8]>], delimiter: u8) -> io::Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new()
        .delimiter(delimiter)
        .flexible(true)
        .from_writer(Vec::new());
    writer.write_record(row)?;
    writer
        .into_inner()
        .map_err(|error| io::Error::other(error.to_string()))
}

/// Fails where a folder was named instead of a file.
pub(super) fn check_file(asked: &Path) -> Result<(), ImportError> {
    if is_device(asked) {
        return Ok(());
    }
    let ends_like_one = asked
        .as_os_str()
        .to_string_lossy()
        .ends_with(std::path::is_separator);
    if ends_like_one || asked.is_dir() {
        return Err(ImportError::RejectsFolder {
            folder: asked.to_path_buf(),
        });
    }
    Ok(())
}

/// Fails where the folder for the file is not there, before a row is read.
pub(super) fn check_place(wanted: &Path) -> Result<(), ImportError> {
    let folder = wanted
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder.map(std::fs::metadata) {
        Some(Err(source)) => Err(ImportError::Rejects {
            file: wanted.to_path_buf(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Fails where the file could not be written, before anything else is.
pub(super) fn check_writable(wanted: &Path) -> Result<(), ImportError> {
    if is_device(wanted) {
        return Ok(());
    }
    let tried = part_of(wanted).and_then(|(part, _)| std::fs::remove_file(part));
    tried.map_err(|source| ImportError::Rejects {
        file: wanted.to_path_buf(),
        source,
    })
}

/// Where the same rejects were written before, they are not written again.
fn place(part: &Path, wanted: &Path) -> io::Result<PathBuf> {
    for number in 1_u32.. {
        let path = if number == 1 {
            wanted.to_path_buf()
        } else {
            numbered(wanted, number)
        };
        // The name is taken with an empty file first, so that two imports cannot both have it.
        match private(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if is_same(part, &path) {
                    return std::fs::remove_file(part).map(|()| path);
                }
            }
            Err(error) => return Err(error),
            Ok(_) => return std::fs::rename(part, &path).map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A new file that its owner alone can read: it has the rows of a list in it.
pub(super) fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

fn is_same(part: &Path, other: &Path) -> bool {
    let length = |path: &Path| Some(std::fs::metadata(path).ok()?.len());
    let bytes = |path: &Path| Some(BufReader::new(File::open(path).ok()?).bytes());
    if length(part).is_none() || length(part) != length(other) {
        return false;
    }
    let (Some(mut part), Some(mut other)) = (bytes(part), bytes(other)) else {
        return false;
    };
    part.all(|byte| matches!((byte, other.next()), (Ok(one), Some(Ok(same))) if one == same))
}

/// `list.rejects-2.csv` for `list.rejects.csv`.
pub(super) fn numbered(path: &Path, number: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path
        .extension()
        .map(|extension| format!(".{}", extension.to_string_lossy()));
    path.with_file_name(format!("{stem}-{number}{}", extension.unwrap_or_default()))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn commas(place: PathBuf) -> Rejects {
        let style = Style::Separated(b',');
        Rejects::written(place, style, Encoding::UTF8, false, &header(&["phone"]))
    }

    fn fields<'t>(fields: &'t [&'t str]) -> Row<'t> {
        Row::Fields(fields.iter().map(|field| field.as_bytes()).collect())
    }

    fn files(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn without_a_rejected_row_there_is_no_file() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let rejects = commas(folder.path().join("a.csv"));
        assert_eq!(rejects.finish().expect("nothing to do"), None);
        assert!(files(folder.path()).is_empty());
    }

    #[test]
    fn the_rows_stand_there_as_they_were_with_line_and_reason() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let place = folder.path().join("a.rejects.csv");
        let names = header(&["phone", "name", "smsq_line", "smsq_reason"]);
        let style = Style::Separated(b';');
        let mut rejects = Rejects::written(place.clone(), style, Encoding::UTF8, false, &names);
        rejects
            .add(3, "too \"short\"", &fields(&["+1", "A;B", "9", "old"]))
            .expect("writes");
        rejects
            .add(4, "too many fields", &fields(&["+1", "B", "C"]))
            .expect("writes");
        assert_eq!(rejects.finish().expect("finishes"), Some(place.clone()));
        assert_eq!(
            std::fs::read_to_string(place).expect("the file"),
            "phone;name;smsq_text;smsq_line;smsq_reason\n\
             +1;\"A;B\";;3;\"too \"\"short\"\"\"\n\
             ;;\"'+1;B;C\";4;too many fields\n"
        );
    }

    #[test]
    fn the_rows_are_in_the_encoding_of_the_list() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let names = header(&["手机号", "姓名"]);
        for (label, is_marked) in [
            ("gb18030", false),
            ("utf-16", true),
            ("shift_jis", false),
            ("utf-8", true),
        ] {
            let place = folder.path().join(label);
            let encoding: Encoding = label.parse().expect("an encoding");
            let style = Style::Separated(b'\t');
            let mut rejects = Rejects::written(place.clone(), style, encoding, is_marked, &names);
            rejects
                .add(2, "no phone", &fields(&["x", "山田"]))
                .expect("writes");
            rejects.finish().expect("finishes");
            let bytes = std::fs::read(place).expect("the file");
            let known = encoding_rs::Encoding::for_label(label.as_bytes()).expect("an encoding");
            let (text, _, is_broken) = known.decode(&bytes);
            assert!(!is_broken && bytes.starts_with(if is_marked { encoding.mark() } else { b"" }));
            let first = if label == "shift_jis" {
                "?机号"
            } else {
                "手机号"
            };
            assert!(
                text.ends_with("x\t山田\t\t2\tno phone\n"),
                "{label}: {text}"
            );
            assert!(
                label == "shift_jis" || text.starts_with(first),
                "{label}: {text}"
            );
        }
    }

    #[test]
    fn rows_of_json_are_objects_again() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let place = folder.path().join("a.jsonl");
        let names = header(&["phone", "name"]);
        let mut rejects = Rejects::written(
            place.clone(),
            Style::JsonLines,
            Encoding::UTF8,
            false,
            &names,
        );
        rejects
            .add(1, "bad", &fields(&["x", "Ann"]))
            .expect("writes");
        rejects
            .add(2, "no object", &Row::Text(b"[1]"))
            .expect("writes");
        rejects.finish().expect("finishes");
        assert_eq!(
            std::fs::read_to_string(place).expect("the file"),
            "{\"phone\":\"x\",\"name\":\"Ann\",\"smsq_line\":\"1\",\"smsq_reason\":\"bad\"}\n\
             {\"smsq_text\":\"[1]\",\"smsq_line\":\"2\",\"smsq_reason\":\"no object\"}\n"
        );
    }

    #[test]
    fn no_other_file_loses_its_place_and_a_failure_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let place = folder.path().join("a.csv");
        for (reason, name) in [("one", "a.csv"), ("two", "a-2.csv"), ("three", "a-3.csv")] {
            let mut rejects = commas(place.clone());
            rejects.add(2, reason, &fields(&["x"])).expect("writes");
            let written = rejects.finish().expect("finishes");
            assert_eq!(written, Some(folder.path().join(name)));
        }
        let mut dropped = commas(place);
        dropped.add(2, "reason", &fields(&["x"])).expect("writes");
        drop(dropped);
        assert_eq!(files(folder.path()).len(), 3);
    }

    #[test]
    fn equal_rejects_are_not_written_a_second_time() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let place = folder.path().join("a.csv");
        for (reason, name) in [("one", "a.csv"), ("two", "a-2.csv"), ("two", "a-2.csv")] {
            let mut rejects = commas(place.clone());
            rejects.add(2, reason, &fields(&["x"])).expect("writes");
            let written = rejects.finish().expect("finishes");
            assert_eq!(written, Some(folder.path().join(name)));
        }
        assert_eq!(files(folder.path()), ["a-2.csv", "a.csv"]);
    }

    #[test]
    fn the_text_of_a_long_row_is_cut() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let mut rejects = commas(folder.path().join("a.csv"));
        let long = "é".repeat(40_000);
        let row = Row::Text(long.as_bytes());
        rejects.add(2, "too long", &row).expect("writes");
        let path = rejects.finish().expect("finishes").expect("a file");
        let text = std::fs::read_to_string(path).expect("the file");
        assert!(
            text.len() < 5_000 && text.contains("é…,2,too long\n"),
            "{text}"
        );
    }
}

//! Prints data to standard output, and messages and progress to standard error. A reader that closes standard
//! output early (`| head`) is not an error.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::console::{StyledObject, Term, measure_text_width, style};
use indicatif::{
    HumanCount, HumanFloatCount, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState,
    ProgressStyle, TermLike,
};
use smsq_message::text::{duration, is_printable, printable};

/// How often a line of progress is printed if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
const MAX_REDRAWS_PER_SECOND: u8 = 20;

const CURSOR_HOME_AND_CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Verbosity of messages on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// `-q`: only warnings and errors.
    Quiet,
    #[default]
    Normal,
    /// `-v`: also a line per message.
    Verbose,
}

/// Prints everything that the program prints. Clones share the terminal.
#[derive(Clone, Debug)]
pub struct Console {
    pub verbosity: Verbosity,
    /// Data is printed as JSON.
    pub is_json: bool,
    /// Standard error is a terminal.
    pub is_terminal: bool,
    bars: MultiProgress,
}

impl Console {
    pub fn new(verbosity: Verbosity, is_json: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let target = if is_terminal {
            let screen = Box::new(Screen(Term::buffered_stderr()));
            ProgressDrawTarget::term_like_with_hz(screen, MAX_REDRAWS_PER_SECOND)
        } else {
            ProgressDrawTarget::hidden()
        };
        Self { verbosity, is_json, is_terminal, bars: MultiProgress::with_draw_target(target) }
    }

    /// Prints `text`, without unprintable characters, to standard output.
    pub fn print(&self, text: &str) -> io::Result<()> {
        self.print_raw(&printable(text))
    }

    /// Clears the terminal that standard output goes to.
    pub fn clear(&self) -> io::Result<()> {
        self.print_raw(CURSOR_HOME_AND_CLEAR)
    }

    fn print_raw(&self, text: &str) -> io::Result<()> {
        let printed = self.bars.suspend(|| {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        });
        // A terminal that was closed gives EIO.
        let eio = rustix::io::Errno::IO.raw_os_error();
        match printed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) if error.raw_os_error() == Some(eio) && io::stdout().is_terminal() => Ok(()),
            printed => printed,
        }
    }

    /// Whether standard output is a terminal, so that what is printed is kept in no file.
    pub fn prints_to_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Standard output, for data that is written in pieces. [`closed`] recognises the error of a closed pipe.
    pub fn output(&self) -> Output {
        Output {
            out: io::BufWriter::with_capacity(1 << 16, io::stdout()),
            is_terminal: io::stdout().is_terminal(),
            incomplete: Vec::new(),
        }
    }

    /// Prints a line to standard error; nothing with `-q`.
    pub fn status(&self, line: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.always(line);
        }
    }

    /// Prints a line to standard error, even with `-q`.
    pub fn always(&self, line: &str) {
        self.line(&printable(line));
    }

    /// Prints a line to standard error with `-v`.
    pub fn detail(&self, line: &str) {
        if self.verbosity == Verbosity::Verbose {
            self.always(line);
        }
    }

    pub fn warn(&self, message: &str) {
        self.labelled(style("warning:").yellow().bold(), message);
    }

    /// Prints `error: …`, and `hint: …` on a line of its own.
    pub fn error(&self, message: &str, hint: Option<&str>) {
        self.labelled(style("error:").red().bold(), message);
        if let Some(hint) = hint {
            self.labelled(style("hint:").cyan(), hint);
        }
    }

    /// Whether a question can be asked: standard input and standard error are terminals.
    pub fn can_ask(&self) -> bool {
        self.is_terminal && !self.is_json && io::stdin().is_terminal()
    }

    /// Asks a question; only `y` and `yes` confirm it.
    pub fn confirm(&self, question: &str) -> bool {
        let mut answer = String::new();
        let read = self.bars.suspend(|| {
            let mut out = io::stderr().lock();
            write!(out, "{} [y/N] ", printable(question))?;
            out.flush()?;
            io::stdin().read_line(&mut answer)
        });
        read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
    }

    /// Standard error for the log: it does not overwrite the progress bar.
    pub fn log(&self) -> Log {
        Log(self.bars.clone())
    }

    /// Shows the progress of `what` ("sending", "importing") until it is dropped.
    pub fn progress(&self, total: Option<u64>, what: &str) -> ProgressDisplay {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden())
            .with_prefix(what.to_owned())
            .with_style(bar_style(total.is_some()));
        let is_shown = self.verbosity > Verbosity::Quiet;
        if is_shown && self.is_terminal {
            let bar = self.bars.add(bar);
            return ProgressDisplay { bar, lines: None };
        }
        let lines =
            is_shown.then(|| (self.clone(), Mutex::new(ProgressLines::new(Instant::now()))));
        ProgressDisplay { bar, lines }
    }

    /// The label is coloured on a terminal, unless `NO_COLOR` is set.
    fn labelled(&self, label: StyledObject<&str>, message: &str) {
        self.line(&format!("{} {}", label.for_stderr(), printable(message)));
    }

    /// Ignores a failure, because it cannot be reported.
    fn line(&self, line: &str) {
        self.bars.suspend(|| writeln!(io::stderr().lock(), "{line}").unwrap_or_default());
    }
}

/// Whether `error` or one of its sources is a broken pipe: the reader of standard output has closed it.
pub fn closed(error: &(dyn Error + 'static)) -> bool {
    let mut errors = std::iter::successors(Some(error), |&error| error.source());
    errors.any(|error| {
        error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Standard output for data that is written in pieces: printable on a terminal, unchanged elsewhere.
#[derive(Debug)]
pub struct Output<W: Write = io::BufWriter<io::Stdout>> {
    out: W,
    is_terminal: bool,
    /// The first bytes of a character whose other bytes have not been written yet.
    incomplete: Vec<u8>,
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.out.write(bytes);
        }
        let mut all = std::mem::take(&mut self.incomplete);
        all.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&all) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => all.len(),
        };
        self.incomplete = all.split_off(whole);
        let text = String::from_utf8_lossy(&all);
        self.out.write_all(printable(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Standard error for the log.
#[derive(Debug)]
pub struct Log(MultiProgress);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Escapes are the log's own colours: it removes those in values.
        let is_unsafe = |c: char| !is_printable(c) && !matches!(c, '\n' | '\t' | '\u{1b}');
        let text = String::from_utf8_lossy(bytes).replace(is_unsafe, " ");
        self.0.suspend(|| io::stderr().lock().write_all(text.as_bytes()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The progress of long work: a bar on a terminal, otherwise a line every few seconds.
#[derive(Debug)]
pub struct ProgressDisplay {
    /// Drawn only on a terminal.
    bar: ProgressBar,
    lines: Option<(Console, Mutex<ProgressLines>)>,
}

impl ProgressDisplay {
    /// Sets how much is done; to be called a few times a second, also without a change.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
        if let Some((console, lines)) = &self.lines {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(line) = lines.due(&self.bar, Instant::now()) {
                console.line(&line);
            }
        }
    }

    pub fn set_total(&self, total: u64) {
        if self.bar.length().is_none() {
            self.bar.set_style(bar_style(true));
        }
        self.bar.set_length(total);
    }

    /// Sets a note that is shown after the counts, such as "`cellar` is down: next try in 8 s".
    pub fn note(&self, note: Option<&str>) {
        let note = note.map(|note| format!("· {}", printable(note)));
        self.bar.set_message(note.unwrap_or_default());
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The terminal. Leaves the cursor behind the last character of the bar instead of at the end of its line: a
/// terminal would wrap the `^C` that it echoes onto the next line, where it would be cleared instead of the bar.
#[derive(Debug)]
struct Screen(Term);

impl TermLike for Screen {
    fn width(&self) -> u16 {
        self.0.width()
    }

    fn height(&self) -> u16 {
        self.0.height()
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.0.move_cursor_up(lines)
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.0.move_cursor_down(lines)
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.0.move_cursor_right(columns)
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.0.move_cursor_left(columns)
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.0.write_line(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        let trimmed = text.trim_end_matches(' ');
        // Trailing spaces are needed where they fill one more line.
        let lines = |text| measure_text_width(text).div_ceil(usize::from(self.width()).max(1));
        let is_same = trimmed.is_empty() || lines(trimmed) == lines(text);
        self.0.write_str(if is_same { trimmed } else { text })
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

fn bar_style(has_total: bool) -> ProgressStyle {
    let template = if has_total {
        // The last two columns are for the `^C` that a terminal echoes.
        "{prefix} {wide_bar:.cyan/dim} {human_pos}/{human_len}  {rate}  {left}  {msg}  "
    } else {
        "{spinner:.cyan} {prefix} {human_pos}  {rate}  {msg}"
    };
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        write!(out, "{:.0}/s", HumanFloatCount(state.per_sec())).unwrap_or_default();
    };
    let left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        if state.pos() > 0 && state.per_sec() > 0.01 {
            let seconds = state.eta().as_secs().max(1);
            let left = duration(Duration::from_secs(seconds));
            write!(out, "{left} left").unwrap_or_default();
        }
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", rate)
        .with_key("left", left)
        .progress_chars("━━─")
}

/// Decides when a line of progress is printed.
#[derive(Debug)]
struct ProgressLines {
    /// When the last line was due, and how much was done then.
    last: (Instant, u64),
    /// The note at that time: while nothing gets done, the same note is printed once.
    last_note: String,
}

impl ProgressLines {
    fn new(now: Instant) -> Self {
        Self { last: (now, 0), last_note: String::new() }
    }

    fn due(&mut self, bar: &ProgressBar, now: Instant) -> Option<String> {
        let (at, before) = self.last;
        let (done, note) = (bar.position(), bar.message());
        let seconds = now.duration_since(at).as_secs();
        if seconds < LINE_EVERY.as_secs() {
            return None;
        }
        let is_repeated = done == before && !note.is_empty() && note == self.last_note;
        self.last = (now, done);
        self.last_note.clone_from(&note);
        if is_repeated {
            return None;
        }
        let rate = done.saturating_sub(before) / seconds;
        let mut line = format!("{}: {}", bar.prefix(), HumanCount(done));
        if let Some(total) = bar.length() {
            let _ = write!(line, " of {}", HumanCount(total));
        }
        let _ = write!(line, ", {}/s", HumanCount(rate));
        let left = bar.length().map(|total| total.saturating_sub(done));
        if let Some(seconds) = left.and_then(|left| left.checked_div(rate)) {
            let left = duration(Duration::from_secs(seconds));
            let _ = write!(line, ", {left} left");
        }
        if !note.is_empty() {
            let _ = write!(line, " {note}");
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_has_rate_and_time_left() {
        let start = Instant::now();
        let mut lines = ProgressLines::new(start);
        let bar = ProgressBar::hidden().with_prefix("sending");
        bar.set_length(50_000);
        let mut due = |done, seconds| {
            bar.set_position(done);
            lines.due(&bar, start + Duration::from_secs(seconds))
        };
        assert_eq!(due(100, 1), None);
        assert_eq!(
            due(10_000, 5).as_deref(),
            Some("sending: 10,000 of 50,000, 2,000/s, 20 s left")
        );
        assert_eq!(due(10_000, 9), None);
        bar.set_message("· `cellar` is down: next try in 8 s");
        assert_eq!(
            due(10_000, 10).as_deref(),
            Some("sending: 10,000 of 50,000, 0/s · `cellar` is down: next try in 8 s")
        );
        assert_eq!(due(10_000, 15), None);
        assert!(due(10_500, 20).is_some());
    }

    #[test]
    fn progress_line_without_total_has_no_time_left() {
        let start = Instant::now();
        let bar = ProgressBar::no_length().with_prefix("importing");
        bar.set_position(1_200);
        let line = ProgressLines::new(start).due(&bar, start + Duration::from_secs(6));
        assert_eq!(line.as_deref(), Some("importing: 1,200, 200/s"));
    }

    #[test]
    fn output_is_printable_on_terminal_and_exact_elsewhere() {
        let written = |is_terminal| {
            let mut output = Output { out: Vec::new(), is_terminal, incomplete: Vec::new() };
            // One byte at a time: characters are cut in the middle.
            for byte in "北\u{1b}[2J\u{9b}\u{202e}é\n".bytes() {
                output.write_all(&[byte]).expect("written");
            }
            String::from_utf8(output.out).expect("text")
        };
        assert_eq!(written(true), "北 [2J é\n");
        assert_eq!(written(false), "北\u{1b}[2J\u{9b}\u{202e}é\n");
    }

    #[test]
    fn closed_finds_broken_pipe_in_sources() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot write the report")]
        struct Outer(#[source] io::Error);
        assert!(closed(&Outer(io::ErrorKind::BrokenPipe.into())));
        assert!(!closed(&Outer(io::ErrorKind::StorageFull.into())));
    }
}

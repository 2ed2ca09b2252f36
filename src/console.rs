//! The only printer: data goes to standard output, talk and progress to standard error, so that
//! `smsq … > file` holds data and nothing else. A reader that closes standard output (`| head`) has
//! had enough: that is no fault.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::console::{Term, measure_text_width};
use indicatif::{
    HumanCount, HumanFloatCount, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState,
    ProgressStyle, TermLike,
};

use crate::text::{duration, is_printable, printable};

/// How far apart the lines of progress are where standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How often the bar is redrawn in a second, at most.
const REDRAWS: u8 = 20;

/// Moves to the top left and clears what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

const RED: &str = "\u{1b}[1;31m";
const YELLOW: &str = "\u{1b}[1;33m";
const CYAN: &str = "\u{1b}[36m";

/// What data looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// How much is said beside the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Talk {
    /// `-q`: only warnings and errors.
    Little,
    #[default]
    Some,
    /// `-v`: also what happens to each message.
    Much,
}

/// Where everything that is printed goes; clones share the one terminal.
#[derive(Clone, Debug)]
pub struct Console {
    pub talk: Talk,
    pub format: Format,
    /// Standard error is a terminal.
    pub terminal: bool,
    colour: bool,
    bars: MultiProgress,
}

impl Console {
    /// Looks at the terminal and at `NO_COLOR`.
    pub fn new(talk: Talk, format: Format) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let terminal = io::stderr().is_terminal();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            talk,
            format,
            terminal,
            colour: terminal && !dumb && !set("NO_COLOR"),
            bars: MultiProgress::with_draw_target(if terminal {
                let screen = Screen(Term::buffered_stderr());
                ProgressDrawTarget::term_like_with_hz(Box::new(screen), REDRAWS)
            } else {
                ProgressDrawTarget::hidden()
            }),
        }
    }

    /// Prints `text` to standard output, without what would steer a terminal, and flushes.
    pub fn data(&self, text: &str) -> io::Result<()> {
        self.raw(&printable(text))
    }

    /// Clears the terminal that standard output goes to.
    pub fn clear(&self) -> io::Result<()> {
        self.raw(CLEAR)
    }

    fn raw(&self, text: &str) -> io::Result<()> {
        let print = || {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        };
        match self.bars.suspend(print) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe || is_hung_up(&error) => Ok(()),
            ended => ended,
        }
    }

    /// Standard output for data too long to hold: write, flush, and ask [`closed`] about an error.
    /// A file or another program gets every byte as it is, a terminal only what is safe to show.
    pub fn output(&self) -> Output {
        Output {
            out: io::BufWriter::with_capacity(1 << 16, io::stdout()),
            is_shown: io::stdout().is_terminal(),
            begun: Vec::new(),
        }
    }

    /// A line of talk; nothing with `-q`.
    pub fn say(&self, line: &str) {
        if self.talk >= Talk::Some {
            self.line(&printable(line));
        }
    }

    /// A line of talk that only `-v` shows.
    pub fn detail(&self, line: &str) {
        if self.talk == Talk::Much {
            self.line(&printable(line));
        }
    }

    pub fn warn(&self, message: &str) {
        self.line(&self.labelled(YELLOW, "warning", message));
    }

    /// `error: …`, and below it `hint: …` where there is one.
    pub fn error(&self, message: &str, hint: Option<&str>) {
        self.line(&self.labelled(RED, "error", message));
        if let Some(hint) = hint {
            self.line(&self.labelled(CYAN, "hint", hint));
        }
    }

    /// Whether somebody is there to be asked.
    pub fn can_ask(&self) -> bool {
        self.terminal && self.format == Format::Text && io::stdin().is_terminal()
    }

    /// Asks, and waits for a line: only a yes is a yes.
    pub fn ask(&self, question: &str) -> bool {
        let mut answer = String::new();
        let heard = self.bars.suspend(|| {
            let mut out = io::stderr().lock();
            write!(out, "{} [y/N] ", printable(question))?;
            out.flush()?;
            io::stdin().read_line(&mut answer)
        });
        heard.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
    }

    /// Standard error for others who write there, such as the log: it goes around a progress bar.
    pub fn log(&self) -> Log {
        Log(self.bars.clone())
    }

    /// Shows how far `what` ("sending", "importing") is, until it is dropped.
    pub fn progress(&self, total: Option<u64>, what: &str) -> Progress {
        let show = if self.talk == Talk::Little {
            Show::Nothing
        } else if self.terminal {
            Show::Bar(self.bars.add(bar(total, what)))
        } else {
            Show::Lines(
                self.clone(),
                Mutex::new(Lines::new(total, what, Instant::now())),
            )
        };
        Progress(show)
    }

    fn labelled(&self, colour: &str, label: &str, message: &str) -> String {
        let message = printable(message);
        if self.colour {
            format!("{colour}{label}:\u{1b}[0m {message}")
        } else {
            format!("{label}: {message}")
        }
    }

    /// Nobody is left to be told when standard error cannot be written.
    fn line(&self, line: &str) {
        self.bars
            .suspend(|| writeln!(io::stderr().lock(), "{line}").unwrap_or_default());
    }
}

/// Whether standard output is a terminal that was closed.
fn is_hung_up(error: &io::Error) -> bool {
    let code = rustix::io::Errno::IO.raw_os_error();
    error.raw_os_error() == Some(code) && io::stdout().is_terminal()
}

/// Whether the reader of standard output has gone: `error` or what it comes from is a broken pipe.
pub fn closed(error: &(dyn Error + 'static)) -> bool {
    let mut failure = Some(error);
    while let Some(error) = failure {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::BrokenPipe
        {
            return true;
        }
        failure = error.source();
    }
    false
}

/// Standard output for what is written in pieces.
#[derive(Debug)]
pub struct Output<W: Write = io::BufWriter<io::Stdout>> {
    out: W,
    /// It goes to a terminal.
    is_shown: bool,
    /// The first bytes of a character whose last ones have not been written yet.
    begun: Vec<u8>,
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_shown {
            return self.out.write(bytes);
        }
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&all) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => all.len(),
        };
        self.begun = all.split_off(whole);
        let text = String::from_utf8_lossy(&all);
        self.out.write_all(printable(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Standard error, around the progress bar if there is one.
#[derive(Debug)]
pub struct Log(MultiProgress);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The escapes are those of the log's own colours: it takes out those of others.
        let steers = |c: char| !is_printable(c) && !matches!(c, '\n' | '\t' | '\u{1b}');
        let text = String::from_utf8_lossy(bytes).replace(steers, " ");
        self.0
            .suspend(|| io::stderr().lock().write_all(text.as_bytes()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// How far something long is: a bar on a terminal, otherwise a line every few seconds.
#[derive(Debug)]
pub struct Progress(Show);

#[derive(Debug)]
enum Show {
    Nothing,
    Bar(ProgressBar),
    Lines(Console, Mutex<Lines>),
}

impl Progress {
    /// Says how much is done by now; call it a few times a second, also when nothing has changed.
    pub fn set(&self, done: u64) {
        match &self.0 {
            Show::Nothing => {}
            Show::Bar(bar) => bar.set_position(done),
            Show::Lines(console, lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(line) = lines.due(done, Instant::now()) {
                    console.line(&line);
                }
            }
        }
    }

    pub fn set_total(&self, total: u64) {
        match &self.0 {
            Show::Nothing => {}
            Show::Bar(bar) => {
                if bar.length().is_none() {
                    bar.set_style(style(true));
                }
                bar.set_length(total);
            }
            Show::Lines(_, lines) => {
                lines.lock().unwrap_or_else(PoisonError::into_inner).total = Some(total);
            }
        }
    }

    /// What else there is to say at this moment ("`cellar` is away: next try in 8 s"); `None` takes it back.
    pub fn note(&self, note: Option<&str>) {
        let note = note.map(|note| printable(note).into_owned());
        match &self.0 {
            Show::Nothing => {}
            Show::Bar(bar) => {
                bar.set_message(note.map(|note| format!("· {note}")).unwrap_or_default());
            }
            Show::Lines(_, lines) => {
                lines.lock().unwrap_or_else(PoisonError::into_inner).note = note;
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Show::Bar(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// The terminal, with the cursor behind the last character of the bar instead of at the end of its line: there a
/// terminal would put the `^C` that it shows onto the next line, and that would be cleared, not the bar's.
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
        let shown = text.trim_end_matches(' ');
        // Spaces that make one more line are counted as that.
        let lines = |text| measure_text_width(text).div_ceil(usize::from(self.width()).max(1));
        let is_same = shown.is_empty() || lines(shown) == lines(text);
        self.0.write_str(if is_same { shown } else { text })
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

fn bar(total: Option<u64>, what: &str) -> ProgressBar {
    // Hidden until it stands in its `MultiProgress`, which draws it.
    ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden())
        .with_prefix(what.to_owned())
        .with_style(style(total.is_some()))
}

fn style(with_total: bool) -> ProgressStyle {
    let template = if with_total {
        // The last two columns stay free for the `^C` of the terminal.
        "{prefix} {wide_bar:.cyan/dim} {human_pos}/{human_len}  {rate}  {left}  {msg}  "
    } else {
        "{spinner:.cyan} {prefix} {human_pos}  {rate}  {msg}"
    };
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        write!(out, "{:.0}/s", HumanFloatCount(state.per_sec())).unwrap_or_default();
    };
    let left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // Before anything is done, and while nothing gets done, nobody knows.
        if state.pos() > 0 && state.per_sec() > 0.01 {
            write!(out, "{} left", duration(whole(state.eta()))).unwrap_or_default();
        }
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", rate)
        .with_key("left", left)
        .progress_chars("━━─")
}

/// In whole seconds, at least one: an estimate is not more exact than that.
fn whole(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs().max(1))
}

/// The plain form: which line is due when.
#[derive(Debug)]
struct Lines {
    what: String,
    total: Option<u64>,
    note: Option<String>,
    /// When the last line was due, and how much was done then: the rate is measured from there.
    since: (Instant, u64),
    /// The note of the last line, where nothing was done since: whoever waits for hours says so once.
    told: Option<String>,
}

impl Lines {
    fn new(total: Option<u64>, what: &str, now: Instant) -> Self {
        Self {
            what: what.to_owned(),
            total,
            note: None,
            since: (now, 0),
            told: None,
        }
    }

    fn due(&mut self, done: u64, now: Instant) -> Option<String> {
        let span = now.duration_since(self.since.0);
        if span < LINE_EVERY {
            return None;
        }
        let rate = done
            .saturating_sub(self.since.1)
            .checked_div(span.as_secs());
        let is_told = done == self.since.1 && self.note.is_some() && self.note == self.told;
        self.since = (now, done);
        self.told.clone_from(&self.note);
        if is_told {
            return None;
        }
        let mut line = format!("{}: {}", self.what, HumanCount(done));
        if let Some(total) = self.total {
            let _ = write!(line, " of {}", HumanCount(total));
        }
        let rate = rate.unwrap_or(0);
        let _ = write!(line, ", {}/s", HumanCount(rate));
        if let Some(seconds) = self
            .total
            .and_then(|total| total.saturating_sub(done).checked_div(rate))
        {
            let left = duration(Duration::from_secs(seconds));
            let _ = write!(line, ", {left} left");
        }
        if let Some(note) = &self.note {
            let _ = write!(line, " · {note}");
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress_comes_every_few_seconds_with_rate_and_time_left() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lines = Lines::new(Some(50_000), "sending", start);
        assert_eq!(lines.due(100, at(1)), None);
        assert_eq!(
            lines.due(10_000, at(5)).as_deref(),
            Some("sending: 10,000 of 50,000, 2,000/s, 20 s left")
        );
        assert_eq!(lines.due(10_000, at(9)), None);
        lines.note = Some("`cellar` is away: next try in 8 s".to_owned());
        assert_eq!(
            lines.due(10_000, at(10)).as_deref(),
            Some("sending: 10,000 of 50,000, 0/s · `cellar` is away: next try in 8 s")
        );
        assert_eq!(lines.due(10_000, at(15)), None);
        assert!(lines.due(10_500, at(20)).is_some());
    }

    #[test]
    fn without_a_total_no_time_left_is_made_up() {
        let start = Instant::now();
        let mut lines = Lines::new(None, "importing", start);
        assert_eq!(
            lines.due(1_200, start + Duration::from_secs(6)).as_deref(),
            Some("importing: 1,200, 200/s")
        );
    }

    #[test]
    fn output_is_cleaned_on_a_terminal_and_exact_elsewhere() {
        let written = |is_shown| {
            let mut output = Output {
                out: Vec::new(),
                is_shown,
                begun: Vec::new(),
            };
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
    fn a_closed_pipe_is_found_below_other_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("could not write the report")]
        struct Outer(#[source] io::Error);
        assert!(closed(&Outer(io::ErrorKind::BrokenPipe.into())));
        assert!(!closed(&Outer(io::ErrorKind::StorageFull.into())));
    }
}

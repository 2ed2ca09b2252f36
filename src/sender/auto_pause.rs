//! Pauses a campaign when most of its recent messages were rejected, and stops it when its provider
//! answers with the same unlisted code or text again and again: a wrong column or template must not use
//! up the list.

use std::collections::VecDeque;

use serde::Deserialize;

/// Section `[auto_pause]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many recent outcomes count.
    pub window: usize,
    /// How many of them must be rejections to pause the campaign; 0: never.
    pub rejected: usize,
    /// How many times in a row the same unlisted code or text stops the campaign; 0: never.
    pub unlisted: usize,
}

/// An answer whose meaning is not in the provider's section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unlisted {
    Code(String),
    /// A text without a code, without its words that contain a digit: ids and times differ in each answer.
    Text(String),
}

impl Unlisted {
    pub fn text(text: &str) -> Self {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ':');
        let words =
            text.split(|c| !is_word(c)).filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
        Self::Text(words.collect::<Vec<_>>().join(" "))
    }
}

/// Watches one campaign.
#[derive(Debug)]
pub struct AutoPause {
    config: Config,
    recent: VecDeque<bool>,
    rejected: usize,
    /// An unlisted answer, and how often it came since the last acceptance.
    unlisted: Option<(Unlisted, usize)>,
}

impl AutoPause {
    pub fn new(config: Config) -> Self {
        Self { config, recent: VecDeque::new(), rejected: 0, unlisted: None }
    }

    /// Records an acceptance.
    pub fn accepted(&mut self) {
        self.unlisted = None;
        self.record(false);
    }

    /// Records a rejection. Returns the rejected and the counted outcomes when it is time to pause.
    pub fn rejected(&mut self) -> Option<(usize, usize)> {
        self.record(true)
    }

    /// Records an unlisted answer. Returns how often it came in a row when it is time to stop.
    pub fn unlisted(&mut self, answer: Unlisted) -> Option<usize> {
        let same = self.unlisted.take().filter(|(last, _)| *last == answer);
        let times = same.map_or(0, |(_, times)| times) + 1;
        if self.config.unlisted > 0 && times >= self.config.unlisted {
            return Some(times);
        }
        self.unlisted = Some((answer, times));
        None
    }

    fn record(&mut self, rejected: bool) -> Option<(usize, usize)> {
        if self.config.rejected == 0 {
            return None;
        }
        self.recent.push_back(rejected);
        self.rejected += usize::from(rejected);
        if self.recent.len() > self.config.window {
            let oldest = self.recent.pop_front().unwrap_or(false);
            self.rejected -= usize::from(oldest);
        }
        if self.rejected < self.config.rejected {
            return None;
        }
        let seen = (self.rejected, self.recent.len());
        self.recent.clear();
        self.rejected = 0;
        Some(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config = Config { window: 100, rejected: 50, unlisted: 3 };

    #[test]
    fn pauses_when_half_of_the_recent_messages_are_rejected() {
        let mut auto_pause = AutoPause::new(CONFIG);
        for index in 0..98 {
            assert_eq!(auto_pause.record(index % 2 == 0), None, "{index}");
        }
        assert_eq!(auto_pause.record(true), Some((50, 99)));
        assert_eq!(auto_pause.record(true), None, "it starts again");
    }

    #[test]
    fn stops_at_the_same_unlisted_code_in_a_row() {
        let mut auto_pause = AutoPause::new(CONFIG);
        assert_eq!(["a", "a", "b", "b"].map(|word| auto_pause.unlisted(code(word))), [None; 4]);
        auto_pause.accepted();
        assert_eq!(["b", "b"].map(|word| auto_pause.unlisted(code(word))), [None; 2]);
        auto_pause.rejected();
        assert_eq!(auto_pause.unlisted(code("b")), Some(3));
        assert_eq!(auto_pause.unlisted(code("b")), None, "it starts again");
        let mut off = AutoPause::new(Config { unlisted: 0, ..CONFIG });
        assert!((0..100).all(|_| off.unlisted(code("b")).is_none()));
    }

    fn code(word: &str) -> Unlisted {
        Unlisted::Code(word.to_owned())
    }

    #[test]
    fn texts_that_differ_in_ids_and_times_are_the_same() {
        let texts = [
            r#"201 Created: {"id":"6f1-a","at":"2026-11-27T08:00:00Z","error":"sender not allowed"}"#,
            r#"201 Created: {"id":"0be-7","at":"2026-11-27T08:00:02Z","error":"sender not allowed"}"#,
            r#"201 Created: {"id":"6f1-a","at":"2026-11-27T08:00:00Z","error":"no credit"}"#,
        ];
        let [first, second, other] = texts.map(Unlisted::text);
        assert_eq!(first, second);
        assert_ne!(first, other);
        assert_ne!(Unlisted::text("a"), code("a"));
    }

    #[test]
    fn some_rejections_in_a_long_list_do_not_pause() {
        let mut auto_pause = AutoPause::new(CONFIG);
        assert!((0..10_000).all(|index| auto_pause.record(index % 3 == 0).is_none()));
    }
}

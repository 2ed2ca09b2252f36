//! Ends a campaign's run when most of its recent messages were rejected, or when one code that nobody has
//! listed is all that its provider says: a wrong column or template must not burn the list.

use std::collections::VecDeque;

use serde::Deserialize;

/// Section `[brake]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many recent outcomes are looked at.
    pub window: usize,
    /// So many rejected among them pause the campaign; 0 switches the brake off.
    pub rejected: usize,
    /// So many times in a row the same code, which the provider's table does not list, stop the campaign; 0 never.
    pub unlisted: usize,
}

/// Watches one campaign.
#[derive(Debug)]
pub struct AutoPause {
    config: Config,
    recent: VecDeque<bool>,
    rejected: usize,
    /// The code that is not listed, and how often it came since anything was accepted.
    code: Option<(String, usize)>,
}

impl AutoPause {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            recent: VecDeque::new(),
            rejected: 0,
            code: None,
        }
    }

    /// Notes that a message was accepted.
    pub fn accepted(&mut self) {
        self.code = None;
        self.note(false);
    }

    /// Notes that one was rejected; returns how many of how many were when it is time to stop.
    pub fn rejected(&mut self) -> Option<(usize, usize)> {
        self.note(true)
    }

    /// Notes a code that is not listed; returns how often it came in a row when it is time to stop.
    pub fn unlisted(&mut self, code: &str) -> Option<usize> {
        let same = self.code.take().filter(|(last, _)| last == code);
        let times = same.map_or(0, |(_, times)| times) + 1;
        if self.config.unlisted > 0 && times >= self.config.unlisted {
            return Some(times);
        }
        self.code = Some((code.to_owned(), times));
        None
    }

    fn note(&mut self, rejected: bool) -> Option<(usize, usize)> {
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

    const CONFIG: Config = Config {
        window: 100,
        rejected: 50,
        unlisted: 3,
    };

    #[test]
    fn half_of_the_recent_messages_rejected_is_too_much() {
        let mut auto_pause = AutoPause::new(CONFIG);
        for index in 0..98 {
            assert_eq!(auto_pause.note(index % 2 == 0), None, "{index}");
        }
        assert_eq!(auto_pause.note(true), Some((50, 99)));
        assert_eq!(auto_pause.note(true), None, "it starts anew");
    }

    #[test]
    fn one_unlisted_code_in_a_row_is_too_much_and_a_success_or_another_code_begins_anew() {
        let mut auto_pause = AutoPause::new(CONFIG);
        assert_eq!(
            ["a", "a", "b", "b"].map(|code| auto_pause.unlisted(code)),
            [None; 4]
        );
        auto_pause.accepted();
        assert_eq!(["b", "b"].map(|code| auto_pause.unlisted(code)), [None; 2]);
        auto_pause.rejected();
        assert_eq!(auto_pause.unlisted("b"), Some(3));
        assert_eq!(auto_pause.unlisted("b"), None, "it starts anew");
        let mut off = AutoPause::new(Config {
            unlisted: 0,
            ..CONFIG
        });
        assert!((0..100).all(|_| off.unlisted("b").is_none()));
    }

    #[test]
    fn some_bad_numbers_in_a_long_list_are_not() {
        let mut auto_pause = AutoPause::new(CONFIG);
        assert!((0..10_000).all(|index| auto_pause.note(index % 3 == 0).is_none()));
    }
}

//! Pauses a campaign when most of its recent messages were rejected: a wrong column or template must
//! not burn the list.

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
}

/// Watches one campaign.
#[derive(Debug)]
pub struct Brake {
    config: Config,
    recent: VecDeque<bool>,
    rejected: usize,
}

impl Brake {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            recent: VecDeque::new(),
            rejected: 0,
        }
    }

    /// Notes an outcome; returns how many of how many were rejected when it is time to stop.
    pub fn note(&mut self, rejected: bool) -> Option<(usize, usize)> {
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
    };

    #[test]
    fn half_of_the_recent_messages_rejected_is_too_much() {
        let mut brake = Brake::new(CONFIG);
        for index in 0..98 {
            assert_eq!(brake.note(index % 2 == 0), None, "{index}");
        }
        assert_eq!(brake.note(true), Some((50, 99)));
        assert_eq!(brake.note(true), None, "it starts anew");
    }

    #[test]
    fn some_bad_numbers_in_a_long_list_are_not() {
        let mut brake = Brake::new(CONFIG);
        assert!((0..10_000).all(|index| brake.note(index % 3 == 0).is_none()));
    }
}

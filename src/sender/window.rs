//! A campaign's sending window in a running worker: while it is closed nothing is claimed and nothing
//! starts. Instants so near to an edge that the clock's error decides count as outside.

use std::time::Duration;

use smsq_lifecycle::admission::{CLOSING, opens_at};
use smsq_message::sms::Timestamp;
use smsq_message::window::{Recipient, SendWindow};

use super::clock::Clock;

/// Whether a message may start now.
pub(super) fn is_open(window: &SendWindow, recipient: Recipient<'_>, clock: &Clock) -> bool {
    let (now, error) = (clock.instant(), clock.error());
    let first = now.minus(error).timestamp();
    let last = now.plus(error + Duration::from_millis(1)).timestamp();
    let span = window.for_one(recipient, first);
    span.contains(first) && span.contains(last)
}

/// The window that all messages of a campaign share, as it was checked last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowState {
    /// `closed_until` is valid in this span.
    valid: (Timestamp, Timestamp),
    closed_until: Option<Timestamp>,
    /// Messages that expire before this opening have been looked for.
    expired_before: Timestamp,
}

impl WindowState {
    /// Returns until when the window is closed.
    pub(super) fn check(
        &mut self,
        window: Option<&SendWindow>,
        now: Timestamp,
        tolerance: Duration,
    ) -> Option<Timestamp> {
        let window = window?;
        if !(self.valid.0..self.valid.1).contains(&now) {
            let open = window.for_all(now)?;
            let span_at = |at| window.for_all(at).unwrap_or(open);
            self.closed_until = opens_at(span_at, now, tolerance);
            let closes_at = open.closes_at.minus(CLOSING);
            self.valid = (now, self.closed_until.unwrap_or(closes_at));
        }
        self.closed_until
    }

    /// Until when the window was closed at the last check.
    pub(super) fn closed_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.closed_until.filter(|until| now < *until)
    }

    /// The next opening, once for each: messages that expire before it can fail now.
    pub(super) fn take_next_opening(&mut self, now: Timestamp) -> Option<Timestamp> {
        let until = self.closed_until(now)?;
        let is_new = until != self.expired_before;
        self.expired_before = until;
        is_new.then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Duration = Duration::from_millis(10);

    fn at(text: &str) -> Timestamp {
        let instant: jiff::Timestamp = text.parse().expect("an instant");
        Timestamp::from_millis(instant.as_millisecond())
    }

    #[test]
    fn instants_near_an_edge_count_as_outside() {
        let window: SendWindow = "09:00-20:00 daily UTC".parse().expect("a window");
        let wait = |now: &str| {
            let mut window_state = WindowState::default();
            let until = window_state.check(Some(&window), at(now), TOLERANCE)?;
            Some(until.as_millis() - at("2026-11-21T09:00:00Z").as_millis())
        };
        let day = 86_400_000;
        for (now, until) in [
            ("2026-11-21T08:00:00Z", Some(10)),
            ("2026-11-21T09:00:00.009Z", Some(10)),
            ("2026-11-21T09:00:00.010Z", None),
            ("2026-11-21T12:00:00.001Z", None),
            ("2026-11-21T19:59:59.749Z", None),
            ("2026-11-21T19:59:59.750Z", Some(day + 10)),
            ("2026-11-21T20:00:00.005Z", Some(day + 10)),
        ] {
            assert_eq!(wait(now), until, "{now}");
        }
    }

    #[test]
    fn window_is_checked_again_when_its_state_ends() {
        let window: SendWindow = "09:00-20:00 daily UTC".parse().expect("a window");
        let mut window_state = WindowState::default();
        let mut look = |now: &str| window_state.check(Some(&window), at(now), TOLERANCE).is_some();
        assert!(!look("2026-11-21T12:00:00Z"));
        assert!(!look("2026-11-21T19:59:59.7Z"));
        assert!(look("2026-11-21T19:59:59.75Z"));
        assert!(look("2026-11-22T09:00:00Z"));
        assert!(!look("2026-11-22T09:00:00.01Z"));
        // The clock was set back.
        assert!(look("2026-11-22T08:00:00Z"));
    }
}

//! A campaign's window as a worker keeps it: what is outside is not asked for, not claimed and not started,
//! and what is so near to an edge that the clock's error decides is outside.

use std::time::Duration;

use super::clock::Clock;
use crate::sms::Timestamp;
use crate::window::{Recipient, Span, Window};

/// What is claimed shortly before a window closes could not start any more.
const LAST: Duration = Duration::from_millis(250);

/// Until when messages have to wait; `None`: they may start. `reach` is at least twice the clock's error.
pub(super) fn waits_until(
    span_at: impl Fn(Timestamp) -> Span,
    now: Timestamp,
    reach: Duration,
) -> Option<Timestamp> {
    let mut span = span_at(now.minus(reach));
    if now.plus(LAST) >= span.closes_at {
        span = span_at(span.closes_at);
    }
    let opens_at = span.opens_at.plus(reach);
    (now < opens_at).then_some(opens_at)
}

/// Whether a message may start at this very moment.
pub(super) fn is_open(window: &Window, recipient: Recipient<'_>, clock: &Clock) -> bool {
    let (now_us, error_us) = (clock.now_us(), clock.error_us());
    let first = Timestamp::from_millis((now_us - error_us).div_euclid(1_000));
    let last = Timestamp::from_millis((now_us + error_us).div_euclid(1_000) + 1);
    let span = window.for_one(recipient, first);
    span.contains(first) && span.contains(last)
}

/// What a worker knows of the window that all messages of a campaign share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hours {
    /// What it knows is so in this time.
    known: (Timestamp, Timestamp),
    closed_until: Option<Timestamp>,
    /// For this opening, what expires before it has been looked for.
    expired_before: Timestamp,
}

impl Hours {
    /// Looks at the window again, where what is known of it is over; until when it is closed.
    pub(super) fn look(
        &mut self,
        window: Option<&Window>,
        now: Timestamp,
        reach: Duration,
    ) -> Option<Timestamp> {
        let window = window?;
        if !(self.known.0..self.known.1).contains(&now) {
            let open = window.for_all(now)?;
            let span_at = |at| window.for_all(at).unwrap_or(open);
            self.closed_until = waits_until(span_at, now, reach);
            let closes_at = open.closes_at.minus(LAST);
            self.known = (now, self.closed_until.unwrap_or(closes_at));
        }
        self.closed_until
    }

    /// Until when the window was closed when it was looked at last.
    pub(super) fn closed_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.closed_until.filter(|until| now < *until)
    }

    /// The opening that messages must live to see, once for each.
    pub(super) fn take_closed(&mut self, now: Timestamp) -> Option<Timestamp> {
        let until = self.closed_until(now)?;
        let is_new = until != self.expired_before;
        self.expired_before = until;
        is_new.then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REACH: Duration = Duration::from_millis(10);

    fn at(text: &str) -> Timestamp {
        let instant: jiff::Timestamp = text.parse().expect("an instant");
        Timestamp::from_millis(instant.as_millisecond())
    }

    #[test]
    fn what_is_near_an_edge_is_outside() {
        let window: Window = "09:00-20:00 daily UTC".parse().expect("a window");
        let wait = |now: &str| {
            let mut hours = Hours::default();
            let until = hours.look(Some(&window), at(now), REACH)?;
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
    fn what_is_known_is_not_asked_again_and_ends_when_it_must() {
        let window: Window = "09:00-20:00 daily UTC".parse().expect("a window");
        let mut hours = Hours::default();
        let mut look = |now: &str| hours.look(Some(&window), at(now), REACH).is_some();
        assert!(!look("2026-11-21T12:00:00Z"));
        assert!(!look("2026-11-21T19:59:59.7Z"));
        assert!(look("2026-11-21T19:59:59.75Z"));
        assert!(look("2026-11-22T09:00:00Z"));
        assert!(!look("2026-11-22T09:00:00.01Z"));
        // The clock was set back.
        assert!(look("2026-11-22T08:00:00Z"));
    }
}

//! Waiting for conditions, without assumptions about the speed of this machine.

use std::time::{Duration, Instant};

/// Longer than anything takes on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until the condition holds; fails if it never does.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

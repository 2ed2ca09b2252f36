//! A clock that reads the time late, at uneven intervals, and from a database whose clock is set.

use proptest::prelude::*;

use super::*;

/// The database shows `true_us + OFFSET_US` at the steady time `true_us`.
const OFFSET_US: i64 = 1_700_000_000_000_000;

fn sample(asked_us: i64, there_us: i64, back_us: i64, set_us: i64) -> ClockSample {
    let read_us = asked_us + there_us + OFFSET_US + set_us;
    ClockSample {
        asked_us,
        answered_us: asked_us + there_us + back_us,
        shown: Timestamp::from_millis(read_us.div_euclid(1_000)),
    }
}

proptest! {
    #[test]
    fn error_never_exceeds_its_bound(
        ways in prop::collection::vec((0_i64..60_000, 0_i64..60_000, 100_000_i64..10_000_000), 1..40),
        drift in -DRIFT..=DRIFT,
    ) {
        let mut asked_us = 0;
        let mut estimate: Option<OffsetEstimate> = None;
        for (there_us, back_us, wait_us) in ways {
            let sample = sample(asked_us, there_us, back_us, part(asked_us + there_us, drift));
            match &mut estimate {
                Some(estimate) => assert!(!estimate.update(sample)),
                None => estimate = Some(OffsetEstimate::first(sample)),
            }
            let known = estimate.expect("a estimate");
            for later_us in [0, wait_us / 2, wait_us] {
                let now_us = sample.answered_us + later_us;
                let off = (known.used(now_us) - OFFSET_US - part(now_us, drift)).abs();
                // The last microsecond is the arithmetic's.
                prop_assert!(off <= known.error(now_us) + 1, "{off} off, {known:?}");
            }
            asked_us = sample.answered_us + wait_us;
        }
    }

    #[test]
    fn clock_never_goes_back_or_hurries_without_a_jump(
        ways in prop::collection::vec((0_i64..90_000, 0_i64..90_000), 2..40),
    ) {
        let mut asked_us = 0;
        let mut estimate = OffsetEstimate::first(sample(0, 20_000, 20_000, 0));
        for (there_us, back_us) in ways {
            let sample = sample(asked_us, there_us, back_us, 0);
            let before = estimate.used(sample.answered_us);
            prop_assert!(!estimate.update(sample));
            prop_assert_eq!(estimate.used(sample.answered_us), before);
            let second = estimate.used(sample.answered_us + 1_000_000);
            prop_assert!((second - before).abs() <= SLEW);
            asked_us = sample.answered_us + 1_000_000;
        }
    }
}

#[test]
fn best_of_several_samples_counts() {
    let mut estimate = OffsetEstimate::first(sample(0, 40_000, 2_000, 0));
    estimate.update(sample(100_000, 200, 30_000, 0));
    estimate.update(sample(200_000, 3_000, 300, 0));
    assert!(estimate.error(204_000) < 20_000, "{estimate:?}");
    let (least, most) = (estimate.least_us, estimate.most_us);
    assert!(most - least < 2_200, "{estimate:?}");
    assert!((least..=most).contains(&OFFSET_US));
}

#[test]
fn small_step_is_followed_gradually_and_a_large_one_at_once() {
    let mut estimate = OffsetEstimate::first(sample(0, 100, 100, 0));
    assert!(!estimate.update(sample(1_000_000, 100, 100, 150_000)));
    let off = OFFSET_US + 150_000 - estimate.used(1_000_200);
    assert!(off > 149_000, "{off}");
    assert!(estimate.error(1_000_200) >= off, "it knows that it is off");
    let off = OFFSET_US + 150_000 - estimate.used(80_000_000);
    assert!(off.abs() < 1_500, "{off}");
    assert!(estimate.update(sample(90_000_000, 100, 100, 3_600_000_000)));
    let off = OFFSET_US + 3_600_000_000 - estimate.used(90_000_200);
    assert!(off.abs() < 1_500, "{off}");
}

#[test]
fn the_steady_clock_continues() {
    let before = steady_us();
    assert!(before > 0);
    assert!(steady_us() >= before);
}

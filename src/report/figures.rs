//! The figures that the text and the HTML page have in common: percentages that add up, rates, facts.

use std::cmp::Reverse;
use std::time::Duration;

use indicatif::HumanCount;
use serde::Serialize;
use smsq_message::text::{counted, duration, messages};

use super::Report;
use super::cost::Part;

/// Delivery times are rounded down to this.
const SHORTEST: Duration = Duration::from_millis(100);
/// The most outages that are shown one by one.
const MAX_FAILOVERS: usize = 5;

/// A fact about a campaign other than the states of its messages.
#[derive(Serialize)]
pub(super) struct Fact {
    pub(super) label: &'static str,
    pub(super) value: String,
    /// Details; may be empty.
    pub(super) more: String,
}

#[expect(clippy::too_many_lines, reason = "it is the list of all facts")]
pub(super) fn facts(report: &Report) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut fact = |label, value: String, more: String| facts.push(Fact { label, value, more });
    let providers = &report.bill.providers;
    let shown = |part: &Part| match providers.len() {
        1 => part.name.clone(),
        _ => format!("{} {}", part.name, messages(part.sent)),
    };
    let providers: Vec<String> = providers.iter().map(shown).collect();
    if !providers.is_empty() {
        let sender = report.sender.as_ref();
        let more = sender.map_or(String::new(), |sender| format!("sender {sender}"));
        fact("provider", providers.join(", "), more);
    }
    for (at, moved) in report.failovers.iter().enumerate() {
        if at == MAX_FAILOVERS {
            let more = counted((report.failovers.len() - at) as u64, "more outage");
            fact("", more, String::new());
            break;
        }
        let (text, span) = moved.describe(&report.local);
        fact("fallback", text, span);
    }
    if report.segments > 0 {
        let alphabets = report.alphabets;
        let more = match alphabets.gsm7 + alphabets.ucs2 {
            0 => String::new(),
            _ => format!(
                "{} imported in GSM-7, {} in UCS-2",
                messages(alphabets.gsm7),
                HumanCount(alphabets.ucs2)
            ),
        };
        let segments = HumanCount(report.segments);
        fact("segments", segments.to_string(), more);
    }
    if let Some(cost) = &report.bill.cost {
        let totals = &report.totals;
        let to_come = cost.to_come(totals.queued + totals.sending);
        let to_come =
            to_come.map(|cost| format!("about {} more for those that wait", cost.estimate()));
        let missing = Some(cost.missing()).filter(|missing| !missing.is_empty());
        let more: Vec<String> = to_come.into_iter().chain(missing).collect();
        fact("cost", cost.amount(), more.join(", "));
    }
    if let Some(took) = report.delivery_time {
        let p95 = format!("95 % within {}", duration(took.p95.max(SHORTEST)));
        fact("delivered", format!("half within {}", duration(took.median.max(SHORTEST))), p95);
    }
    if let Some(replies) = report.replies {
        let replies = HumanCount(replies);
        fact("replies", replies.to_string(), String::new());
    }
    if report.opted_out > 0 {
        let opted_out = HumanCount(report.opted_out);
        let more = "of the failed";
        fact("opted out", opted_out.to_string(), more.to_owned());
    }
    if report.repeated > 0 {
        let repeated = HumanCount(report.repeated);
        let more = "accepted more than once by the provider";
        fact("repeated", repeated.to_string(), more.to_owned());
    }
    let lists = &report.lists;
    if lists.count > 0 {
        let names = match lists.names.as_slice() {
            [first, _, _, rest @ ..] if !rest.is_empty() => {
                format!("{first} and {} more", lists.names.len() - 1)
            }
            names => names.join(", "),
        };
        let imports = match lists.count {
            count if count == lists.names.len() as u64 => String::new(),
            count => format!("{}, ", counted(count, "import")),
        };
        let more = format!(
            "{imports}{}: {} accepted, {}, {} suppressed, {} rejected",
            counted(lists.rows, "row"),
            HumanCount(lists.accepted),
            counted(lists.duplicates, "duplicate"),
            HumanCount(lists.suppressed),
            HumanCount(lists.rejected)
        );
        fact("lists", names, more);
    }
    facts
}

/// `49/s`, or per minute if it is very slow.
pub fn rate(per_second: f64) -> String {
    match per_second {
        10.0.. => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rounded rate above 0"
            )]
            let whole = per_second.round() as u64;
            format!("{}/s", HumanCount(whole))
        }
        0.1..10.0 => format!("{per_second:.1}/s"),
        _ => format!("{:.1}/min", per_second * 60.0),
    }
}

/// The share of each count in their sum: `97.4 %`, or `< 0.1 %`. Empty if the sum is 0.
pub(super) fn percentages(counts: &[u64]) -> Vec<String> {
    let sum: u128 = counts.iter().map(|count| u128::from(*count)).sum();
    let shares = counts.iter().zip(per_mille(counts));
    let texts = shares.map(|(count, share)| match u128::from(*count) * 1_000 {
        _ if sum == 0 => String::new(),
        scaled if *count > 0 && scaled < sum => "< 0.1 %".to_owned(),
        _ => format!("{}.{} %", share / 10, share % 10),
    });
    texts.collect()
}

/// Shares in tenths of a percent that add up to 1000, by the largest remainder. A count above 0 has at least 1.
fn per_mille(counts: &[u64]) -> Vec<u64> {
    let sum: u128 = counts.iter().map(|count| u128::from(*count)).sum();
    if sum == 0 {
        return vec![0; counts.len()];
    }
    let scaled = |count: u64| u128::from(count) * 1_000;
    let mut shares: Vec<u64> = counts
        .iter()
        .map(|count| {
            let whole = u64::try_from(scaled(*count) / sum).unwrap_or(1_000);
            whole.max(u64::from(*count > 0))
        })
        .collect();
    let mut by_remainder: Vec<usize> = (0..counts.len()).collect();
    by_remainder.sort_by_key(|at| Reverse(scaled(counts[*at]) % sum));
    let mut missing = 1_000_i128 - shares.iter().copied().map(i128::from).sum::<i128>();
    for at in by_remainder {
        // A share that was raised to 1 has used its remainder.
        let is_raised = scaled(counts[at]) < sum;
        if missing > 0 && counts[at] > 0 && !is_raised {
            shares[at] += 1;
            missing -= 1;
        }
    }
    if let Some(largest) = (0..counts.len()).max_by_key(|at| shares[*at]) {
        let corrected = i128::from(shares[largest]) + missing;
        shares[largest] = u64::try_from(corrected).unwrap_or(0);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rate_has_separators_and_no_more_digits_than_it_needs() {
        for (per_second, expected) in [
            (26_877.4, "26,877/s"),
            (49.4, "49/s"),
            (2.34, "2.3/s"),
            (0.5, "0.5/s"),
            (0.05, "3.0/min"),
        ] {
            assert_eq!(rate(per_second), expected);
        }
    }

    #[test]
    fn percentages_are_rounded_and_add_up() {
        assert_eq!(percentages(&[2, 1]), ["66.7 %", "33.3 %"]);
        assert_eq!(percentages(&[5, 3, 1]), ["55.6 %", "33.3 %", "11.1 %"]);
        assert_eq!(percentages(&[1, 1, 1]), ["33.4 %", "33.3 %", "33.3 %"]);
        assert_eq!(percentages(&[999_999, 1]), ["99.9 %", "< 0.1 %"]);
        assert_eq!(percentages(&[5, 0]), ["100.0 %", "0.0 %"]);
        assert_eq!(percentages(&[0, 0]), ["", ""]);
    }

    proptest! {
        #[test]
        fn shares_add_up_and_hide_nothing(counts in prop::collection::vec(0_u64..50_000_000, 1..8)) {
            let shares = per_mille(&counts);
            let sum: u64 = counts.iter().sum();
            if sum > 0 {
                prop_assert_eq!(shares.iter().sum::<u64>(), 1_000);
            }
            for (count, share) in counts.iter().zip(shares) {
                prop_assert_eq!(*count > 0, share > 0);
                let exact = count * 1_000 / sum.max(1);
                prop_assert!(share.abs_diff(exact) <= 8, "{} for {}", share, exact);
            }
        }
    }
}

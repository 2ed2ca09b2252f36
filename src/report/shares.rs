//! Shares of a whole that add up to 100.0 %.

/// The share of each count in their sum, in tenths of a percent: together they are 1000, and what is not
/// nothing has at least 1. Rounded by the largest remainder. Empty counts have no shares.
pub(super) fn tenths(counts: &[u64]) -> Vec<u64> {
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
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(scaled(counts[*at]) % sum));
    let mut missing = 1_000_i128 - shares.iter().copied().map(i128::from).sum::<i128>();
    for at in order {
        // What was raised to 1 has had its remainder.
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

/// `97.4 %`; `< 0.1 %` where it is less. Empty where the whole is.
pub(super) fn percentages(counts: &[u64]) -> Vec<String> {
    let sum: u128 = counts.iter().map(|count| u128::from(*count)).sum();
    let shares = tenths(counts);
    counts
        .iter()
        .zip(shares)
        .map(|(count, tenths)| match u128::from(*count) * 1_000 {
            _ if sum == 0 => String::new(),
            scaled if *count > 0 && scaled < sum => "< 0.1 %".to_owned(),
            _ => format!("{}.{} %", tenths / 10, tenths % 10),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_are_rounded_and_add_up() {
        assert_eq!(percentages(&[2, 1]), ["66.7 %", "33.3 %"]);
        assert_eq!(percentages(&[5, 3, 1]), ["55.6 %", "33.3 %", "11.1 %"]);
        assert_eq!(percentages(&[1, 1, 1]), ["33.4 %", "33.3 %", "33.3 %"]);
        assert_eq!(percentages(&[999_999, 1]), ["99.9 %", "< 0.1 %"]);
        assert_eq!(percentages(&[5, 0]), ["100.0 %", "0.0 %"]);
        assert_eq!(percentages(&[0, 0]), ["", ""]);
    }

    proptest! {
        #[test]
        fn tenths_add_up_and_hide_nothing(counts in prop::collection::vec(0_u64..50_000_000, 1..8)) {
            let shares = tenths(&counts);
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

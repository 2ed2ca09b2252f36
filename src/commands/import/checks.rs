//! What makes an import stop and ask before anything is written: too many rows that cannot be used, or a list
//! whose people were written to a moment ago.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{List, fault};
use crate::commands::Context;
use crate::commands::words::{counted, duration};
use crate::import::{ImportError, Plan};
use crate::store::Store;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How many rows may be rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::commands) enum Allowance {
    Percent(f64),
    Rows(u64),
}

impl FromStr for Allowance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let percent = |text: &str| {
            text.trim()
                .parse()
                .ok()
                .filter(|share| (0.0..=100.0).contains(share))
        };
        let read = match text.strip_suffix('%') {
            Some(share) => percent(share).map(Self::Percent),
            None => text.parse().ok().map(Self::Rows),
        };
        read.ok_or_else(|| format!("`{text}` is no share of rows; write it like `5%` or `100`"))
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(share) => write!(f, "{share}%"),
            Self::Rows(rows) => write!(f, "{rows}"),
        }
    }
}

impl Allowance {
    #[expect(
        clippy::cast_precision_loss,
        reason = "nobody counts so many rows to the last one"
    )]
    fn allows(self, rejected: u64, rows: u64) -> bool {
        match self {
            Self::Percent(share) => rejected as f64 * 100.0 <= share * rows as f64,
            Self::Rows(most) => rejected <= most,
        }
    }
}

/// Reads every list to its end, if `--max-rejects` was given.
pub(in crate::commands) async fn check_rejects(
    list: &List,
    plans: &[Plan],
    context: &Context,
) -> anyhow::Result<()> {
    let Some(allowed) = list.max_rejects else {
        return Ok(());
    };
    for plan in plans {
        let progress = context.console.progress(None, "looking");
        let found = plan
            .preview(0, None, None, |done| progress.set(done.rows))
            .await
            .map_err(fault)?;
        if !allowed.allows(found.rejected, found.rows) {
            let reasons = found.reasons.sorted();
            let (kind, count) = reasons.first().copied().unwrap_or_default();
            return Err(fault(ImportError::TooManyRejects {
                file: plan.file().to_owned(),
                rejected: found.rejected,
                rows: found.rows,
                allowed: allowed.to_string(),
                most: format!("most often: {kind} ({})", counted(count, "row")),
            }));
        }
    }
    Ok(())
}

/// Whether a list may go to its campaign though another one has it: asks where somebody is there.
pub(super) async fn check_again(
    list: &List,
    plan: &Plan,
    context: &Context,
    store: &Store,
) -> anyhow::Result<()> {
    if list.again {
        return Ok(());
    }
    let campaign = list.campaign_for(plan);
    let now = store.now().await?;
    let since = now.minus(DAY);
    let Some((other, at)) = store
        .imported_elsewhere(plan.hash(), campaign, since)
        .await?
    else {
        return Ok(());
    };
    let again = ImportError::Again {
        file: plan.file().to_owned(),
        campaign: other,
        ago: format!("{} ago", duration(now.since(at))),
    };
    if context.console.can_ask() {
        let question = format!("{again}. Put everybody in it into `{campaign}` too?");
        if context.console.ask(&question) {
            return Ok(());
        }
    }
    Err(fault(again))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_rows_is_a_percentage_or_a_count() {
        let read = |text: &str| text.parse::<Allowance>();
        assert_eq!(read(" 2.5 %"), Ok(Allowance::Percent(2.5)));
        assert_eq!(read("100"), Ok(Allowance::Rows(100)));
        for bad in ["", "%", "101%", "-1%", "few"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(Allowance::Percent(5.0).allows(5, 100) && !Allowance::Percent(5.0).allows(6, 100));
        assert!(Allowance::Percent(5.0).allows(0, 0) && !Allowance::Rows(0).allows(1, 100));
    }
}

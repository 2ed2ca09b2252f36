//! What makes an import stop and ask before anything is written: too many rows that cannot be used, or a list
//! whose people were written to a moment ago.

use std::time::Duration;

use super::{List, fault};
use crate::commands::Context;
use crate::commands::words::{counted, duration};
use crate::import::{ImportError, Plan, SeenKeys};
use crate::store::Store;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Fails where rejected rows could not be written; reads every list to its end, if there is a limit to the rows
/// that may be rejected.
pub(in crate::commands) async fn check_rejects(
    list: &List,
    plans: &[Plan],
    context: &Context,
) -> anyhow::Result<()> {
    for plan in plans {
        plan.check_rejects().map_err(fault)?;
    }
    let Some(allowed) = list.max_rejects.or(context.config.import.max_rejects) else {
        return Ok(());
    };
    for plan in plans {
        let progress = context.console.progress(None, "looking");
        let found = plan
            .preview(&mut SeenKeys::default(), 0, None, None, |done| {
                progress.set(done.rows)
            })
            .await
            .map_err(fault)?
            .summary;
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

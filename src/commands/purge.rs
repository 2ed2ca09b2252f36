//! `smsq purge`: deletes messages that were settled long ago, empty campaigns, or all data of one person. The counts
//! stay.

use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::HumanCount;
use serde_json::json;
use smsq_message::age::Age;
use smsq_message::phone::Region;
use smsq_message::sms::Timestamp;
use smsq_message::text::{counted, messages};
use smsq_process::exit::Exit;
use smsq_store::{Purge, Purged, Removal, Store};

use super::{Context, user_of, with_hint};

const EXAMPLES: &str = "\
Examples:
  smsq purge --older-than 90d --dry-run        how many messages that would be
  smsq purge --older-than 90d --yes
  smsq purge --campaigns --yes                 remove campaigns that are done and empty
  smsq purge --phone +8613812345678            one person's right to be forgotten

--older-than deletes messages that were sent, failed or cancelled before that time (phone, text and \
columns), and unknown messages whose last attempt was before it. Queued messages stay. --phone also \
deletes what is queued for that phone: it will not be sent. A message that is being sent stays: run \
the command again.

--campaigns removes campaigns without messages whose last import was more than a day ago, or with \
--older-than that long ago: their names and settings, not their counts, which are shown as those of \
removed campaigns. Paused campaigns stay, the campaign `default`, and those into which other programs \
inserted messages.

Only counts are kept: totals, reports and `check` still say how many messages there were, and how \
many of them were purged. Dedupe keys contain phones, so they are deleted, too: importing the same \
list again sends to these recipients again. The suppression list stays, because it keeps people \
from being texted. Your own files (lists, rejects, reports, logs) are not touched.

`retention.older_than` in smsq.toml purges automatically, a part at each `import` and `send`. A purge \
works in small steps: it can be interrupted, and run again.";

/// How long campaigns have been done that are removed, without another age.
const DAY: &str = "1d";

/// Delete old messages, empty campaigns or one person's messages; the counts stay
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(
    group = clap::ArgGroup::new("what").required(true).multiple(true).args(["older_than", "phone", "campaigns"])
)]
pub struct Args {
    /// Messages settled longer ago than this: 90d, 6mo or 1y; at least a day
    #[arg(long, value_name = "AGE", value_parser = str::parse::<Age>)]
    older_than: Option<Age>,
    /// Campaigns that are done and have no messages
    #[arg(long)]
    campaigns: bool,
    /// All messages to this phone
    #[arg(long, value_name = "PHONE", conflicts_with_all = ["older_than", "campaigns"])]
    phone: Option<String>,
    /// The country of a number without a country code, such as GB
    #[arg(long)]
    region: Option<Region>,
    /// Only count
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let store = if args.dry_run { context.store_to_read().await? } else { context.store().await? };
    match &args.phone {
        Some(phone) => purge_phone(args, phone, context, &store).await,
        None => purge_older(args, context, &store).await,
    }
}

async fn purge_older(args: &Args, context: &Context, store: &Store) -> anyhow::Result<Exit> {
    let now = store.now().await?;
    let age = match args.older_than {
        Some(age) => age,
        None => DAY.parse().map_err(anyhow::Error::msg)?,
    };
    let before = age.before(now);
    let found = found(args, store, before).await?;
    let count = subject(args, &found);
    if args.dry_run {
        let message = match args.older_than {
            Some(_) => format!("dry run: would purge {count} settled before {before}"),
            None => format!("dry run: would purge {count} done before {before}"),
        };
        return report(args, context, &message, &found);
    }
    let question = format!("purge {count}? This cannot be undone");
    if found.total() + found.campaigns > 0 && !confirmed(args, context, &question)? {
        return Ok(Exit::CouldNotRun);
    }
    let mut signals = context.signals.listen();
    let progress = context.console.progress(Some(found.total()), "purging");
    let purge = match args.older_than {
        Some(_) => Purge::before(before, args.campaigns.then_some(Removal::Asked)),
        None => Purge::of_campaigns(before),
    };
    let is_stopped = AtomicBool::new(false);
    let (actor, mut signal) = (user_of("purge"), None);
    let done = {
        let purging = smsq_operations::purge(store, purge, &actor, |done| {
            progress.set(done.total());
            is_stopped.load(Ordering::Relaxed)
        });
        tokio::pin!(purging);
        // A step that is interrupted may be committed: it is counted when it has returned.
        tokio::select! {
            biased;
            done = &mut purging => done?,
            exit = signals.next() => {
                context.console.status("stopping: the current step is finished first");
                signal = Some(exit);
                is_stopped.store(true, Ordering::Relaxed);
                purging.await?
            }
        }
    };
    drop(progress);
    let message = format!("purged {}", subject(args, &done));
    report(args, context, &message, &done)?;
    Ok(signal.unwrap_or(Exit::Done))
}

/// What would be purged.
async fn found(args: &Args, store: &Store, before: Timestamp) -> anyhow::Result<Purged> {
    let mut found = match args.older_than {
        Some(_) => store.count_older(before).await?,
        None => Purged::default(),
    };
    if args.campaigns {
        let campaigns = store.removable_campaigns(before, Removal::Asked).await?;
        found.campaigns = campaigns.len() as u64;
    }
    Ok(found)
}

/// `12 messages and 3 empty campaigns`.
fn subject(args: &Args, purged: &Purged) -> String {
    let campaigns = counted(purged.campaigns, "empty campaign");
    match (args.older_than, args.campaigns) {
        (Some(_), true) => format!("{} and {campaigns}", messages(purged.total())),
        (None, true) => campaigns,
        (_, false) => messages(purged.total()),
    }
}

async fn purge_phone(
    args: &Args,
    phone: &str,
    context: &Context,
    store: &Store,
) -> anyhow::Result<Exit> {
    let parsed = context.phone(phone, args.region)?;
    let phones = spellings(phone, parsed.as_str());
    let found = store.count_person(&phones).await?;
    let count = messages(found.total());
    if args.dry_run {
        let message = format!("dry run: would purge {count}");
        return report(args, context, &message, &found);
    }
    let question =
        format!("purge {count} to this phone, also those not yet sent? This cannot be undone");
    if found.total() > 0 && !confirmed(args, context, &question)? {
        return Ok(Exit::CouldNotRun);
    }
    let done = smsq_operations::purge_person(store, &phones, &user_of("purge")).await?;
    let message = format!("purged {}", messages(done.total()));
    report(args, context, &message, &done)?;
    context.console.status(
        "the suppression list is not purged: `smsq suppress add` keeps a phone from being texted again",
    );
    Ok(Exit::Done)
}

/// The forms in which another program may have written a phone.
fn spellings(raw: &str, e164: &str) -> Vec<String> {
    let digits = e164.trim_start_matches('+');
    let mut all = vec![e164.to_owned(), digits.to_owned(), format!("00{digits}"), raw.to_owned()];
    all.sort();
    all.dedup();
    all
}

/// Whether to continue: asks unless `--yes` was given.
fn confirmed(args: &Args, context: &Context, question: &str) -> anyhow::Result<bool> {
    if args.yes {
        return Ok(true);
    }
    if !context.console.can_ask() {
        return Err(with_hint(
            "a purge cannot be undone, and standard input is not a terminal",
            "pass `--yes` to confirm; `--dry-run` only counts",
        ));
    }
    let is_confirmed = context.console.confirm(question);
    if !is_confirmed {
        context.console.status("nothing was purged");
    }
    Ok(is_confirmed)
}

/// ` (12 sent, 3 failed)`; empty if nothing was purged.
fn parts(purged: &Purged) -> String {
    let parts = [
        (purged.sent, "sent"),
        (purged.failed, "failed"),
        (purged.unknown, "unknown"),
        (purged.cancelled, "cancelled"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{} {word}", HumanCount(*count)))
        .collect();
    match parts.as_slice() {
        [] => String::new(),
        parts => format!(" ({})", parts.join(", ")),
    }
}

fn report(args: &Args, context: &Context, message: &str, purged: &Purged) -> anyhow::Result<Exit> {
    let mut object = json!({
        "purged": purged.total(),
        "sent": purged.sent,
        "failed": purged.failed,
        "unknown": purged.unknown,
        "cancelled": purged.cancelled,
        "sending": purged.sending,
    });
    if args.dry_run {
        object["dry_run"] = true.into();
    }
    let message = format!("{message}{}", parts(purged));
    if args.campaigns {
        object["campaigns"] = purged.campaigns.into();
    }
    context.report(&message, &object)?;
    if purged.sending > 0 {
        let are = if purged.sending == 1 { "is" } else { "are" };
        context.console.warn(&format!(
            "{} {are} being sent: run this again when that is settled",
            messages(purged.sending)
        ));
    }
    Ok(Exit::Done)
}

/// Applies setting `retention.older_than`, and says what was purged.
pub(super) async fn apply_retention(context: &Context, store: &Store) -> anyhow::Result<()> {
    let done = smsq_operations::apply_retention(store, &context.config.retention).await?;
    if done.total() > 0 {
        let count = counted(done.total(), "old message");
        context
            .console
            .status(&format!("purged {count}{}: setting `retention.older_than`", parts(&done)));
    }
    if done.campaigns > 0 {
        let count = counted(done.campaigns, "empty campaign");
        context.console.status(&format!("removed {count}: setting `retention.older_than`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_include_every_form_once() {
        assert_eq!(
            spellings("07400 123451", "+447400123451"),
            ["+447400123451", "00447400123451", "07400 123451", "447400123451"]
        );
        assert_eq!(spellings("+447400123451", "+447400123451").len(), 3);
    }

    #[test]
    fn parts_leave_out_zero_counts() {
        let purged = Purged { sent: 1_200, cancelled: 3, ..Purged::default() };
        assert_eq!(parts(&purged), " (1,200 sent, 3 cancelled)");
        assert_eq!(parts(&Purged::default()), "");
    }
}

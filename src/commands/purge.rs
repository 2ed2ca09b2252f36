//! `smsq purge`: forgets messages that were settled long ago, or one person; what is counted stays counted.

use indicatif::HumanCount;
use serde_json::{Value, json};

use super::signals::Signals;
use super::words::{counted, messages};
use super::{Context, hinted};
use crate::exit::Exit;
use crate::phone::Region;
use crate::store::{Age, Person, Purged, Store};

const EXAMPLES: &str = "\
Examples:
  smsq purge --older-than 90d --dry-run        how many messages that would be
  smsq purge --older-than 90d --yes
  smsq purge --phone +8613812345678            one person's right to be forgotten

--older-than forgets what was settled before that: the ledger and the failures, phone, text and
columns, and unknown messages that were last tried before it. Messages that are still to be sent
stay. --phone also forgets what waits to be sent to that person: it is not sent any more. What is
being sent at this very moment stays: run it again.

Only counts are left: totals, reports and `check` still say how many messages there were, and how
many of them were purged. Dedupe keys are made of phones, so they go too: whoever is in the same
list, imported again, gets the message again. The suppression list stays, because nobody could be
kept from being texted otherwise. Lists, rejects files, reports and logs are files of yours: smsq
does not touch them.

`retention.older_than` in smsq.toml does it by itself, a part at each `import` and `send`. It works in
small steps: it may be interrupted, and run again.";

/// So many steps of at most a thousand messages are taken by the way.
const STEPS_BY_THE_WAY: u32 = 100;

/// Forget messages that were settled long ago, or one person; only the counts stay
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["older_than", "phone"]))]
pub struct Args {
    /// What was settled longer ago than that, like 90d, 6mo or 1y; a day at least
    #[arg(long, value_name = "AGE", value_parser = str::parse::<Age>)]
    older_than: Option<Age>,
    /// Everything to this phone
    #[arg(long, value_name = "PHONE")]
    phone: Option<String>,
    /// Where a number without a country code is at home, like GB
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
    let store = if args.dry_run {
        context.store_to_read().await?
    } else {
        context.store().await?
    };
    match (args.older_than, &args.phone) {
        (Some(age), _) => older(args, age, context, &store).await,
        (None, Some(phone)) => person(args, phone, context, &store).await,
        (None, None) => Ok(Exit::Done),
    }
}

async fn older(args: &Args, age: Age, context: &Context, store: &Store) -> anyhow::Result<Exit> {
    let before = age.before(store.now().await?);
    let found = store.older_than(before).await?;
    if args.dry_run {
        context.console.say(&format!(
            "dry run: {} settled before {before} would be purged{}",
            messages(found.total()),
            parts(&found)
        ));
        return tell(context, &found, 0, true);
    }
    let question = format!(
        "purge {}? Nothing brings them back",
        messages(found.total())
    );
    if found.total() > 0 && !confirmed(args, context, &question)? {
        return Ok(Exit::CouldNotRun);
    }
    let progress = context.console.progress(Some(found.total()), "purging");
    let mut signals = Signals::listen()?;
    let mut purge = store.begin_purge(before).await?;
    let mut done = Purged::default();
    let signal = loop {
        let now = store.now().await?;
        let step = store.next_purge(&mut purge, now);
        tokio::pin!(step);
        let (step, signal) = tokio::select! {
            biased;
            step = &mut step => (step?, None),
            signal = signals.next() => {
                context.console.say(
                    "stopping: the step that is running is finished first (again: stop at once)",
                );
                tokio::select! {
                    // It is committed, or not, when it ends: not counted before.
                    step = &mut step => (step?, Some(signal)),
                    again = signals.next() => return Ok(again),
                }
            }
        };
        let is_over = step.is_none();
        done += step.unwrap_or_default();
        progress.set(done.total());
        if is_over || signal.is_some() {
            break signal;
        }
    };
    drop(progress);
    context.console.say(&format!(
        "purged {}{}",
        messages(done.total()),
        parts(&done)
    ));
    tell(context, &done, 0, false)?;
    Ok(signal.unwrap_or(Exit::Done))
}

async fn person(
    args: &Args,
    phone: &str,
    context: &Context,
    store: &Store,
) -> anyhow::Result<Exit> {
    let parsed = context.phone(phone, args.region)?;
    let phones = spellings(phone, parsed.as_str());
    let found = store.known_of(&phones).await?;
    if args.dry_run {
        context.console.say(&format!(
            "dry run: {} would be purged{}",
            messages(found.messages.total()),
            parts(&found.messages)
        ));
        warn_of_sending(context, &found);
        return tell(context, &found.messages, found.sending, true);
    }
    let question = format!(
        "forget {} to this phone, and send it nothing that waits? Nothing brings them back",
        messages(found.messages.total())
    );
    if found.messages.total() > 0 && !confirmed(args, context, &question)? {
        return Ok(Exit::CouldNotRun);
    }
    let done = store.forget(&phones, store.now().await?).await?;
    context.console.say(&format!(
        "purged {}{}",
        messages(done.messages.total()),
        parts(&done.messages)
    ));
    warn_of_sending(context, &done);
    context
        .console
        .say("`smsq suppress add` keeps a phone from being texted again; that list is not purged");
    tell(context, &done.messages, done.sending, false)
}

/// What another program may have written for the same phone.
fn spellings(raw: &str, e164: &str) -> Vec<String> {
    let digits = e164.trim_start_matches('+');
    let mut all = vec![
        e164.to_owned(),
        digits.to_owned(),
        format!("00{digits}"),
        raw.to_owned(),
    ];
    all.sort();
    all.dedup();
    all
}

fn warn_of_sending(context: &Context, person: &Person) {
    if person.sending > 0 {
        let are = if person.sending == 1 { "is" } else { "are" };
        context.console.warn(&format!(
            "{} {are} being sent at this moment: run this again when that is settled",
            messages(person.sending)
        ));
    }
}

/// Whether it may go on: asks where somebody is there, and wants `--yes` where nobody is.
fn confirmed(args: &Args, context: &Context, question: &str) -> anyhow::Result<bool> {
    if args.yes {
        return Ok(true);
    }
    if !context.console.can_ask() {
        return Err(hinted(
            "a purge cannot be taken back, and nobody is here to be asked",
            Some("`--yes` answers for you; `--dry-run` only counts"),
        ));
    }
    let is_meant = context.console.ask(question);
    if !is_meant {
        context.console.say("nothing was purged");
    }
    Ok(is_meant)
}

/// ` (12 sent, 3 failed)`
fn parts(purged: &Purged) -> String {
    let all = [
        (purged.sent, "sent"),
        (purged.failed, "failed"),
        (purged.unknown, "unknown"),
        (purged.cancelled, "cancelled"),
    ];
    let some = all.iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> = some
        .map(|(count, word)| format!("{} {word}", HumanCount(*count)))
        .collect();
    if words.is_empty() {
        String::new()
    } else {
        format!(" ({})", words.join(", "))
    }
}

fn tell(
    context: &Context,
    purged: &Purged,
    sending: u64,
    is_dry_run: bool,
) -> anyhow::Result<Exit> {
    if context.is_json() {
        let mut object: Value = json!({
            "purged": purged.total(),
            "sent": purged.sent,
            "failed": purged.failed,
            "unknown": purged.unknown,
            "cancelled": purged.cancelled,
            "sending": sending,
        });
        if is_dry_run {
            object["dry_run"] = true.into();
        }
        context.print_json(&object)?;
    }
    Ok(Exit::Done)
}

/// Purges a bounded part of what is older than `keep.older_than` allows, before other work begins.
pub(super) async fn by_the_way(context: &Context, store: &Store) -> anyhow::Result<()> {
    let Some(age) = context.config.retention.age() else {
        return Ok(());
    };
    let now = store.now().await?;
    let mut purge = store.begin_purge(age.before(now)).await?;
    let mut done = Purged::default();
    for _ in 0..STEPS_BY_THE_WAY {
        let Some(step) = store.next_purge(&mut purge, now).await? else {
            break;
        };
        done += step;
    }
    if done.total() > 0 {
        let of = counted(done.total(), "old message");
        context.console.say(&format!(
            "purged {of}{}: setting `retention.older_than`",
            parts(&done)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phone_is_known_by_all_its_spellings() {
        assert_eq!(
            spellings("07400 123451", "+447400123451"),
            [
                "+447400123451",
                "00447400123451",
                "07400 123451",
                "447400123451"
            ]
        );
        assert_eq!(spellings("+447400123451", "+447400123451").len(), 3);
    }

    #[test]
    fn only_what_there_is_is_counted_out() {
        let purged = Purged {
            sent: 1_200,
            cancelled: 3,
            ..Purged::default()
        };
        assert_eq!(parts(&purged), " (1,200 sent, 3 cancelled)");
        assert_eq!(parts(&Purged::default()), "");
    }
}

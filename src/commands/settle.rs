//! `smsq settle`: the operator decides what became of unknown messages.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;
use smsq_message::text::messages;
use smsq_operations::SettledAs;
use smsq_process::exit::Exit;

use super::values::campaign_name;
use super::{Context, user_of};

const EXAMPLES: &str = "\
Examples:
  smsq report --campaign welcome-3f2a91 --failed       which are unknown
  smsq settle --campaign welcome-3f2a91 --unknown sent
  smsq settle --campaign welcome-3f2a91 --unknown failed --phone +8613812345678
  smsq settle --journal smsq.db-unsettled/19a3-6f-3-c0ffee.marks      after the database was moved or restored

Look the messages up at the provider first. To send them again instead: `smsq retry --unknown`.";

/// Record what became of unknown messages, after you have looked them up at the provider
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The campaign
    #[arg(
        long,
        value_name = "NAME",
        value_parser = campaign_name,
        required_unless_present = "journal"
    )]
    campaign: Option<String>,
    /// Outcome to record
    #[arg(long, value_name = "OUTCOME", required_unless_present = "journal")]
    unknown: Option<SettleAs>,
    /// Only the message to this phone
    #[arg(long, value_name = "PHONE")]
    phone: Option<String>,
    /// Store the results in a file that a worker left, although it is about the database in another place
    #[arg(long, value_name = "FILE", conflicts_with_all = ["campaign", "unknown", "phone"])]
    journal: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SettleAs {
    /// The provider accepted them
    Sent,
    /// The provider never accepted them
    Failed,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    match (&args.journal, &args.campaign, args.unknown) {
        (Some(journal), ..) => settle_journal(journal, context).await,
        (None, Some(campaign), Some(outcome)) => {
            settle_unknown(campaign, outcome, args.phone.as_deref(), context).await
        }
        _ => anyhow::bail!("missing --campaign and --unknown, or --journal"),
    }
}

async fn settle_journal(journal: &Path, context: &Context) -> anyhow::Result<Exit> {
    let store = context.store().await?;
    let name = journal.file_name().unwrap_or_default();
    let audited = user_of("settle").of_journal(&name.to_string_lossy());
    let settled = smsq_sender::settle_file(&store, journal, audited).await?;
    let message = format!("settled {} by `{}`", messages(settled), journal.display());
    let object = json!({ "journal": journal.display().to_string(), "settled": settled });
    context.report(&message, &object)
}

async fn settle_unknown(
    campaign: &str,
    outcome: SettleAs,
    phone: Option<&str>,
    context: &Context,
) -> anyhow::Result<Exit> {
    let (store, campaign) = context.store_and_campaign(campaign).await?;
    let phone = context.phone_flag(phone)?;
    let outcome = match outcome {
        SettleAs::Sent => SettledAs::Sent,
        SettleAs::Failed => SettledAs::Failed,
    };
    let actor = user_of("settle");
    let settled =
        smsq_operations::settle(&store, &campaign, outcome, phone.as_deref(), &actor).await?;
    let message = match settled {
        0 => "no unknown message matches: nothing was changed".to_owned(),
        _ => format!("settled {} as {}", messages(settled), outcome.as_str()),
    };
    let object = json!({ "campaign": campaign.name, "settled": settled, "as": outcome.as_str() });
    context.report(&message, &object)
}

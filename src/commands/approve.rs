//! `smsq approve`: shows what a campaign would send, and lets a second person decide.

use serde_json::json;

use super::send::describe;
use super::values::CampaignName;
use super::{Context, user_of, with_hint};
use crate::exit::Exit;
use crate::operations;
use crate::report::shell_word;
use crate::text::messages;

const EXAMPLES: &str = "\
Examples:
  smsq approve spring                            shows what would be sent, and asks
  smsq approve spring --reject 'the link is wrong'

The user and host of this command count as the person; owners of a database can always change it.";

/// Approve a campaign that waits for a second person, or reject it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    campaign: CampaignName,
    /// Do not approve it, and say why
    #[arg(long, value_name = "REASON", conflicts_with = "yes")]
    reject: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (store, campaign) = context.store_and_campaign(args.campaign.as_str()).await?;
    let name = &campaign.name;
    if let Some(reason) = &args.reject {
        operations::reject(&store, &campaign, reason, &user_of("reject")).await?;
        let message = format!("campaign `{name}` is not approved; its messages continue to wait");
        return context.report(&message, &json!({ "campaign": name, "approved": false }));
    }
    let actor = user_of("approve");
    let subject = operations::approval_subject(&store, &campaign, &actor).await?;
    let text = describe(context, &store, &campaign, subject.messages, None).await?;
    context.console.status(text.trim_end());
    let wanted_by: Vec<&str> = campaign
        .approval
        .wanted_by
        .iter()
        .map(String::as_str)
        .collect();
    context
        .console
        .status(&format!("by {}", wanted_by.join(", ")));
    if !args.yes {
        if !context.console.can_ask() {
            return Err(with_hint(
                "standard input is not a terminal",
                "pass `--yes` to approve it",
            ));
        }
        let question = format!("approve {}?", messages(subject.messages));
        if !context.console.confirm(&question) {
            context.console.status("it was not approved");
            return Ok(Exit::CouldNotRun);
        }
    }
    operations::approve(&store, &campaign, &subject.fingerprint, &actor).await?;
    let next = format!("next: `smsq send --campaign {}`", shell_word(name));
    let message =
        format!("approved campaign `{name}`; running workers send it within seconds; {next}");
    context.report(&message, &json!({ "campaign": name, "approved": true }))
}

//! `smsq approve`: shows what a campaign would send, and lets a second person decide.

use serde_json::json;
use smsq_message::text::messages;
use smsq_process::exit::Exit;
use smsq_report::shell_word;

use super::send::describe;
use super::values::campaign_name;
use super::{Context, user_of, with_hint};

const EXAMPLES: &str = "\
Examples:
  smsq approve spring                            shows what would be sent, and asks
  smsq approve spring --reject 'the link is wrong'
  smsq approve --replace-rules                   after `[approval]` was made less strict

The user and host of this command count as the person; owners of a database can always change it.";

/// Approve what waits in a campaign for a second person, or reject it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The campaign
    #[arg(
        value_name = "NAME",
        value_parser = campaign_name,
        required_unless_present_any = ["campaign", "replace_rules"]
    )]
    name: Option<String>,
    /// The campaign
    #[arg(long, value_name = "NAME", value_parser = campaign_name, conflicts_with = "name")]
    campaign: Option<String>,
    /// Do not approve it, and say why
    #[arg(long, value_name = "REASON", conflicts_with = "yes")]
    reject: Option<String>,
    /// Replace the rules that the database keeps by those of `[approval]`, also if they are less strict
    #[arg(long, conflicts_with_all = ["name", "campaign", "reject"])]
    replace_rules: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let name = args.name.as_deref().or(args.campaign.as_deref());
    let Some(name) = name else {
        return replace_rules(args, context).await;
    };
    let (store, campaign) = context.store_and_campaign(name).await?;
    let name = &campaign.name;
    if let Some(reason) = &args.reject {
        smsq_operations::reject(&store, &campaign, reason, &user_of("reject")).await?;
        let message = format!("campaign `{name}` is not approved; its messages continue to wait");
        return context.report(&message, &json!({ "campaign": name, "approved": false }));
    }
    let actor = user_of("approve");
    let subject = smsq_operations::approval_subject(&store, &campaign, &actor).await?;
    let (lanes, count) = (subject.lanes.as_deref(), subject.messages);
    let text = describe(context, &store, &campaign, lanes, count, None).await?;
    let console = &context.console;
    console.status(text.trim_end());
    for waiting in &subject.waiting {
        console.status(&waiting.to_string());
    }
    for own in &subject.own {
        console.status(&format!("waits for another person: {own}"));
    }
    let question = format!("approve {}?", messages(subject.messages));
    if !is_confirmed(args, context, &question)? {
        console.status("it was not approved");
        return Ok(Exit::CouldNotRun);
    }
    smsq_operations::approve(&store, &campaign, &subject.fingerprint, &actor).await?;
    let next = format!("next: `smsq send --campaign {}`", shell_word(name));
    let message =
        format!("approved campaign `{name}`; running workers send it within seconds; {next}");
    context.report(&message, &json!({ "campaign": name, "approved": true }))
}

fn is_confirmed(args: &Args, context: &Context, question: &str) -> anyhow::Result<bool> {
    if args.yes {
        return Ok(true);
    }
    if !context.console.can_ask() {
        return Err(with_hint("standard input is not a terminal", "pass `--yes` to confirm"));
    }
    Ok(context.console.confirm(question))
}

/// Replaces the rules in the database by those of the configuration.
async fn replace_rules(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (store, rules) = (context.store().await?, &context.config.approval);
    let stored = store.approval_rules().await?;
    let question = format!("lists need approval {stored}; replace that by {rules}?");
    if !is_confirmed(args, context, &question)? {
        context.console.status("nothing was changed");
        return Ok(Exit::CouldNotRun);
    }
    smsq_operations::replace_approval_rules(&store, rules, &user_of("approve")).await?;
    let message = format!("lists need approval {rules}");
    context.report(&message, &json!({ "rules": rules.to_string() }))
}

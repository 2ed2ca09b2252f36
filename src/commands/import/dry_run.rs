//! `smsq import --dry-run`: what would be sent, what it costs and how long it takes; nothing is written.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::{List, fault, find_homes, tell, unchanged_hint};
use crate::commands::words::{duration, messages};
use crate::commands::{Context, hinted, providers};
use crate::exit::Exit;
use crate::import::{Mapping, Plan, Preview};
use crate::rate::Rate;
use crate::report::shell_word;
use crate::store::{Access, Campaign, Fault, Store};
use crate::text::segments::Alphabet;

/// So many messages are shown, and so many rejected rows.
const SAMPLES: usize = 5;
/// So many expensive characters are named.
const CHARACTERS: usize = 5;

/// A file, looked through.
struct Look<'a> {
    file: &'a str,
    campaign: &'a str,
    mapping: Mapping,
    preview: Preview,
    /// The limits that would hold.
    limits: Vec<Rate>,
}

pub(super) async fn run(
    list: &List,
    plans: &mut [Plan],
    context: &Context,
) -> anyhow::Result<Exit> {
    let store = match Store::open(&context.config.database.url, Access::Existing).await {
        Ok(store) => Some(store),
        Err(error) if error.fault() == Fault::Missing => None,
        Err(error) => return Err(hinted(&error, error.hint())),
    };
    if let Some(store) = &store {
        find_homes(list, plans, store).await?;
    }
    let plans: &[Plan] = plans;
    let mut objects = Vec::new();
    let mut is_usable = true;
    for plan in plans {
        let look = look(list, plan, context, store.as_ref()).await?;
        is_usable &= look.preview.rows > look.preview.rejected;
        if context.is_json() {
            objects.push(look.object());
        } else {
            context.console.data(&look.text())?;
        }
        tell::warn_of(&context.console, look.file, &look.preview.odd);
        if look.preview.unchanged > 0 {
            let hint = unchanged_hint(look.preview.unchanged, shell_word(look.campaign));
            context.console.say(&hint);
        }
    }
    if context.is_json() {
        let object = match objects.as_mut_slice() {
            [one] => one.take(),
            _ => json!({ "dry_run": true, "files": objects }),
        };
        context.print_json(&object)?;
    }
    context.console.say("dry run: nothing was written");
    Ok(if is_usable {
        Exit::Done
    } else {
        Exit::Incomplete
    })
}

async fn look<'a>(
    list: &'a List,
    plan: &'a Plan,
    context: &Context,
    store: Option<&Store>,
) -> anyhow::Result<Look<'a>> {
    let name = list.campaign_for(plan);
    let campaign = match store {
        Some(store) => store.campaign(name).await?,
        None => None,
    };
    let known = store.map(|store| (store, campaign.as_ref()));
    let progress = context.console.progress(None, "looking");
    let preview = plan
        .preview(SAMPLES, known, |done| progress.set(done.rows))
        .await
        .map_err(fault)?;
    Ok(Look {
        file: plan.file(),
        campaign: name,
        mapping: plan.mapping(),
        preview,
        limits: limits(list, campaign.as_ref(), context)?,
    })
}

/// The provider's limits and the campaign's own.
fn limits(
    list: &List,
    campaign: Option<&Campaign>,
    context: &Context,
) -> anyhow::Result<Vec<Rate>> {
    let named = campaign.and_then(|campaign| campaign.provider.as_ref());
    let default = context.config.default_provider.as_ref();
    let mut limits = match list.provider.as_ref().or(named).or(default) {
        Some(name) => providers::without_secrets(context, name)?.rates().0.clone(),
        None => Vec::new(),
    };
    limits.extend(campaign.iter().flat_map(|campaign| campaign.rate.0.clone()));
    Ok(limits)
}

fn alphabet(alphabet: Alphabet) -> &'static str {
    match alphabet {
        Alphabet::Gsm7 => "GSM-7",
        Alphabet::Ucs2 => "UCS-2",
    }
}

impl Look<'_> {
    /// How long sending takes under the narrowest limit.
    fn takes(&self) -> Option<Duration> {
        let count = u32::try_from(self.preview.accepted).map_or(f64::MAX, f64::from);
        let slowest = self
            .limits
            .iter()
            .map(|limit| limit.per_second())
            .reduce(f64::min)?;
        Duration::try_from_secs_f64((count / slowest).ceil()).ok()
    }

    fn text(&self) -> String {
        let preview = &self.preview;
        let Mapping {
            form, phone, text, ..
        } = &self.mapping;
        let mut text = format!(
            "{} into campaign `{}`\n  list        {form}\n  phone       {phone}\n  text        {text}\n",
            self.file, self.campaign
        );
        for (word, count) in [
            ("rows", preview.rows),
            ("would send", preview.accepted),
            ("duplicates", preview.duplicates),
            ("suppressed", preview.suppressed),
            ("rejected", preview.rejected),
        ] {
            let _ = writeln!(text, "  {word:<11} {}", indicatif::HumanCount(count));
        }
        tell::explain(&mut text, &preview.repeats, &preview.reasons);
        let _ = writeln!(text, "  segments    {}", tell::segments(&preview.segments));
        let takes = match (self.takes(), self.limits.as_slice()) {
            (Some(span), [_, ..]) => {
                let limits: Vec<String> = self.limits.iter().map(Rate::to_string).collect();
                format!("about {} at {}", duration(span), limits.join(", "))
            }
            _ => "as fast as it goes: no limit is set".to_owned(),
        };
        let _ = writeln!(text, "  sending     {takes}");
        for (character, count) in preview.expensive.iter().take(CHARACTERS) {
            let code = u32::from(*character);
            let shown = if character.is_control() {
                ' '
            } else {
                *character
            };
            let _ = writeln!(
                text,
                "  expensive   `{shown}` (U+{code:04X}) makes {} UCS-2",
                messages(*count)
            );
        }
        for sample in &preview.samples {
            let _ = writeln!(
                text,
                "\n  line {} to {}: {} × {}\n    {}",
                sample.line,
                sample.phone,
                sample.segments.count,
                alphabet(sample.segments.alphabet),
                sample.content.replace('\n', "\n    ")
            );
        }
        for (line, rejected) in &preview.rejects {
            let _ = writeln!(text, "\n  line {line} rejected: {}", rejected.reason);
        }
        text
    }

    fn object(&self) -> Value {
        let preview = &self.preview;
        let samples: Vec<Value> = preview
            .samples
            .iter()
            .map(|sample| {
                json!({
                    "line": sample.line, "phone": sample.phone, "content": sample.content,
                    "segments": sample.segments.count,
                    "alphabet": alphabet(sample.segments.alphabet),
                })
            })
            .collect();
        let rejects: Vec<Value> = preview
            .rejects
            .iter()
            .map(|(line, rejected)| json!({ "line": line, "reason": rejected.reason }))
            .collect();
        json!({
            "dry_run": true,
            "file": self.file,
            "campaign": self.campaign,
            "rows": preview.rows,
            "accepted": preview.accepted,
            "duplicates": preview.duplicates,
            "suppressed": preview.suppressed,
            "rejected": preview.rejected,
            "segments": preview.segments,
            "cost": null,
            "takes_ms": self.takes().map(crate::sms::millis),
            "samples": samples,
            "rejects": rejects,
            "by_reason": tell::by_reason(&preview.reasons),
            "list": self.mapping.form,
            "phone": self.mapping.phone,
            "text": self.mapping.text,
        })
    }
}

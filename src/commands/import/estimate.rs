//! What sending a list would be like, before it is imported: `--dry-run`, and the question that `run` asks
//! before a large campaign.

use std::collections::HashMap;
use std::fmt::{Display, Write as _};

use indicatif::HumanCount;
use serde_json::{Map, Value, json};

use super::{List, existing, explain_import_error, local_now, output};
use crate::commands::window::check_opens;
use crate::commands::{Context, providers};
use crate::exit::Exit;
use crate::import::{
    Estimate, Interpretation, Pace, Plan, PriceOf, Rejection, Sample, Schedule, SeenKeys, Summary,
};
use crate::rate::Rate;
use crate::store::{Access, Campaign, Store};
use crate::text::segments::Alphabet;
use crate::text::{counted, duration, is_printable, messages, printable_line, smart};
use crate::window::local_and_utc;

/// How many messages and rejected rows are shown.
pub(in crate::commands) const SAMPLES: usize = 5;
const SHOWN_CHARACTERS: usize = 5;
const SHOWN_COUNTRIES: usize = 5;

/// A list, and what sending it would be like.
struct ListEstimate<'a> {
    file: &'a str,
    campaign: &'a str,
    interpretation: Interpretation,
    summary: Summary,
    /// Line and reason of the first rejected rows.
    rejects: Vec<(u64, Rejection)>,
    schedule: Schedule,
    estimate: Estimate,
}

/// Prints what an import would do.
pub(super) async fn dry_run(
    list: &List,
    plans: &[Plan],
    context: &Context,
) -> anyhow::Result<Exit> {
    let estimates = estimates(list, plans, context).await?;
    let mut objects = Vec::new();
    for one in &estimates {
        if context.is_json() {
            objects.push(one.json());
        } else {
            context.console.print(&one.text())?;
        }
        one.warn(context);
        output::hint_at_unchanged(&context.console, &one.summary, one.campaign);
    }
    if context.is_json() {
        let object = match objects.as_mut_slice() {
            [one] => one.take(),
            _ => json!({ "dry_run": true, "files": objects }),
        };
        context.print_json(&object)?;
    }
    context.console.status("dry run: nothing was written");
    let is_usable = |one: &ListEstimate| one.summary.rows > one.summary.rejected;
    Ok(if estimates.iter().all(is_usable) {
        Exit::Done
    } else {
        Exit::Incomplete
    })
}

/// Shows a large campaign and asks whether to send it, if standard input is a terminal.
pub(in crate::commands) async fn confirm(
    list: &List,
    plans: &[Plan],
    context: &Context,
) -> anyhow::Result<bool> {
    let console = &context.console;
    let ask_from = context.config.import.ask_from;
    if ask_from == 0 || !console.can_ask() {
        return Ok(true);
    }
    let estimates = estimates(list, plans, context).await?;
    let total = estimates.iter().map(|one| one.summary.accepted).sum();
    if total < ask_from {
        return Ok(true);
    }
    for one in &estimates {
        console.status(one.text().trim_end());
        one.warn(context);
    }
    let is_confirmed = console.confirm(&format!("send {}?", messages(total)));
    if !is_confirmed {
        console.status("nothing was written");
    }
    Ok(is_confirmed)
}

async fn estimates<'a>(
    list: &'a List,
    plans: &'a [Plan],
    context: &Context,
) -> anyhow::Result<Vec<ListEstimate<'a>>> {
    let store = existing(context, Access::Read).await?;
    // By campaign: the same key in two files is one message.
    let mut seen: HashMap<&str, SeenKeys> = HashMap::new();
    let mut estimates = Vec::new();
    for plan in plans {
        let seen = seen.entry(list.campaign_for(plan)).or_default();
        estimates.push(ListEstimate::read(list, plan, context, store.as_ref(), seen).await?);
    }
    Ok(estimates)
}

impl<'a> ListEstimate<'a> {
    async fn read(
        list: &'a List,
        plan: &'a Plan,
        context: &Context,
        store: Option<&Store>,
        seen: &mut SeenKeys,
    ) -> anyhow::Result<Self> {
        let name = list.campaign_for(plan);
        let campaign = match store {
            Some(store) => store.campaign(name).await?,
            None => None,
        };
        let campaign = campaign.as_ref();
        let prices = list.prices(campaign, context);
        let price = |phone: &str| prices?.of(phone);
        let price = prices.is_some().then_some(&price as PriceOf<'_>);
        let now = local_now();
        let schedule = list.schedule(now)?;
        let current = campaign.and_then(|campaign| campaign.window.clone());
        let window = list.window.change(None)?.applied_to(current);
        if let Some(window) = &window {
            check_opens(window, schedule, now)?;
        }
        let starts_at = schedule.due_at.unwrap_or(now);
        let open_for = schedule.expires_at.map(|until| match &window {
            Some(window) => window.open_between(starts_at, until),
            None => until.since(starts_at),
        });
        let known = store.map(|store| (store, campaign));
        let progress = context.console.progress(None, "checking");
        let preview = plan
            .preview(seen, SAMPLES, known, price, |done| progress.set(done.rows))
            .await
            .map_err(explain_import_error)?;
        Ok(Self {
            file: plan.file(),
            campaign: name,
            interpretation: plan.interpretation(),
            estimate: Estimate {
                messages: preview.summary.accepted,
                stats: preview.stats,
                pace: Pace {
                    limits: limits(list.provider_for(campaign, context), campaign, context)?,
                    open_for,
                    window,
                    starts_at,
                },
                currency: prices.map(|prices| prices.currency.clone()),
            },
            summary: preview.summary,
            rejects: preview.rejects,
            schedule,
        })
    }

    fn warn(&self, context: &Context) {
        output::warn_of_non_mobile(&context.console, self.file, &self.summary.non_mobile);
    }

    fn text(&self) -> String {
        let mut text = format!("{} into campaign `{}`\n", self.file, self.campaign);
        write_row(&mut text, "list", &self.interpretation.format);
        write_row(&mut text, "phone", &self.interpretation.phone);
        write_row(&mut text, "text", &self.interpretation.text);
        output::write_counts(&mut text, &self.summary, "would send");
        write_schedule(&mut text, self.schedule);
        write_estimate(&mut text, &self.estimate);
        for (line, rejection) in &self.rejects {
            let reason = printable_line(&rejection.reason);
            let _ = writeln!(text, "\n  line {line} rejected: {reason}");
        }
        text
    }

    fn json(&self) -> Value {
        let (estimate, stats) = (&self.estimate, &self.estimate.stats);
        let currency = estimate.currency.as_deref();
        let mut object =
            output::summary_json(Some(self.campaign), &self.summary, currency, self.schedule);
        let countries = stats.countries.iter();
        let countries: Map<String, Value> = countries
            .map(|(country, count)| (country.clone(), json!(count)))
            .collect();
        let expensive = stats.expensive.iter().take(SHOWN_CHARACTERS);
        let expensive = expensive.map(|(character, count)| {
            json!({ "character": character, "messages": count, "instead": smart::plain(*character) })
        });
        let rejects = self.rejects.iter();
        let rejects =
            rejects.map(|(line, rejection)| json!({ "line": line, "reason": rejection.reason }));
        for (key, value) in [
            ("dry_run", json!(true)),
            ("file", json!(self.file)),
            (
                "takes_ms",
                json!(estimate.duration().map(crate::sms::millis)),
            ),
            (
                "ends_at",
                json!(estimate.ends_at().map(|at| at.to_string())),
            ),
            ("too_late", json!(estimate.too_late().unwrap_or_default())),
            ("countries", countries.into()),
            ("expensive", expensive.collect()),
            ("saving", json!(stats.saving)),
            ("longest", json!(stats.longest.as_ref().map(sample_json))),
            (
                "most_expensive",
                json!(stats.most_expensive.as_ref().map(sample_json)),
            ),
            ("samples", stats.samples.iter().map(sample_json).collect()),
            ("rejects", rejects.collect()),
            ("list", json!(self.interpretation.format)),
            ("phone", json!(self.interpretation.phone)),
            ("text", json!(self.interpretation.text)),
        ] {
            object[key] = value;
        }
        object
    }
}

/// The limits of the provider and of the campaign.
pub(in crate::commands) fn limits(
    provider: Option<&String>,
    campaign: Option<&Campaign>,
    context: &Context,
) -> anyhow::Result<Vec<Rate>> {
    let mut limits = match provider {
        Some(name) => providers::without_secrets(context, name)?.rates().0.clone(),
        None => Vec::new(),
    };
    limits.extend(campaign.iter().flat_map(|campaign| campaign.rate.0.clone()));
    Ok(limits)
}

pub(in crate::commands) fn write_row(text: &mut String, name: &str, value: impl Display) {
    let _ = writeln!(text, "  {name:<11} {value}");
}

pub(in crate::commands) fn write_schedule(text: &mut String, schedule: Schedule) {
    for (name, at) in [
        ("starts", schedule.due_at),
        ("expires", schedule.expires_at),
    ] {
        if let Some(at) = at {
            write_row(text, name, local_and_utc(at));
        }
    }
}

/// Segments, cost, recipients by country, duration, expensive characters, and the messages worth looking at.
pub(in crate::commands) fn write_estimate(text: &mut String, estimate: &Estimate) {
    let stats = &estimate.stats;
    output::write_segments(text, &stats.segments);
    output::write_cost(text, stats.cost, estimate.currency.as_deref());
    if stats.saving > 0 {
        let saving = counted(stats.saving, "segment");
        write_row(text, "saving", format!("{saving} with `--smart`"));
    }
    if stats.countries.len() > 1 {
        let shown = stats.countries.iter().take(SHOWN_COUNTRIES);
        let mut shown: Vec<String> = shown
            .map(|(country, count)| format!("{country}: {}", HumanCount(*count)))
            .collect();
        if stats.countries.len() > SHOWN_COUNTRIES {
            shown.push("…".to_owned());
        }
        write_row(text, "countries", shown.join(", "));
    }
    write_row(text, "sending", sending(estimate));
    for (character, count) in stats.expensive.iter().take(SHOWN_CHARACTERS) {
        let code = u32::from(*character);
        let is_shown = is_printable(*character) && !character.is_whitespace();
        let shown = if is_shown { *character } else { ' ' };
        let instead = match smart::plain(*character) {
            Some("") => ", and can be removed".to_owned(),
            Some(plain) => format!(", `{plain}` would not"),
            None => String::new(),
        };
        let count = messages(*count);
        let value = format!("`{shown}` (U+{code:04X}) makes {count} UCS-2{instead}");
        write_row(text, "expensive", value);
    }
    for (label, sample) in estimate.labelled_samples() {
        let label = label.map(|label| format!("{label}: ")).unwrap_or_default();
        let line = sample.line.map(|line| format!("line {line} "));
        let _ = writeln!(
            text,
            "\n  {label}{}to {}: {} × {}\n    {}",
            line.unwrap_or_default(),
            printable_line(&sample.phone),
            sample.segments.count,
            alphabet(sample),
            sample.content.replace('\n', "\n    ")
        );
    }
}

/// How long sending takes, and until when.
fn sending(estimate: &Estimate) -> String {
    let window = match (&estimate.pace.window, estimate.ends_at()) {
        (Some(window), Some(at)) => {
            format!(
                ", {}: until about {}",
                window.describe(),
                window.format_local(at)
            )
        }
        (Some(window), None) => format!(", {}", window.describe()),
        (None, _) => String::new(),
    };
    let Some(span) = estimate.duration() else {
        return format!("without a rate limit{window}");
    };
    let limits: Vec<String> = estimate.pace.limits.iter().map(Rate::to_string).collect();
    let late = estimate.too_late().map(|late| {
        let late = messages(late);
        format!("; about {late} would expire before they are sent")
    });
    format!(
        "about {} at {}{window}{}",
        duration(span),
        limits.join(", "),
        late.unwrap_or_default()
    )
}

fn alphabet(sample: &Sample) -> &'static str {
    match sample.segments.alphabet {
        Alphabet::Gsm7 => "GSM-7",
        Alphabet::Ucs2 => "UCS-2",
    }
}

fn sample_json(sample: &Sample) -> Value {
    json!({
        "line": sample.line, "phone": sample.phone, "content": sample.content,
        "segments": sample.segments.count, "alphabet": alphabet(sample),
    })
}

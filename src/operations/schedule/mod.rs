//! Schedules: campaigns that are imported from a query again and again. Each run of a period goes into the same campaign,
//! whose dedupe key is the key of the schedule, so a key gets at most one message in a period.

mod cron;
mod runs;

use std::path::PathBuf;
use std::str::FromStr as _;

use serde::{Deserialize, Serialize};
use smsq_import::{QueryRows, Unique, When, campaign_name};
use smsq_message::text::{Hinted, did_you_mean};
use smsq_message::window::Zone;
use smsq_process::boxed;
use smsq_process::jobs::Until;
use smsq_store::{
    Campaign, NextRun, RunCounts, ScheduleRow, ScheduleRun, ScheduleSettings, SourceDatabase,
    Store, StoreError,
};
use utoipa::ToSchema;

pub use self::cron::{CronTime, Per};
use self::cron::{Fire, read_local, written};
pub use self::runs::Scheduler;
use super::list_settings::is_url;
use super::lists::ListOptions;
use super::{Actor, OperationError};

/// The longest name, which leaves room for the period in the name of a campaign.
const MAX_NAME: usize = 60;
/// How many runs of a schedule are listed.
const LISTED_RUNS: i64 = 7;
/// The verb in the audit log.
const VERB: &str = "schedule";

/// What a schedule imports, and how; stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleOptions {
    /// What messages call the query: the name of its file.
    pub query_name: String,
    /// `None`: the column `content`.
    pub text: Option<String>,
    /// Names that the text uses, and their columns.
    pub columns: Vec<(String, String)>,
    /// `None`: the setting.
    pub region: Option<String>,
    /// `national` or `international`; `None`: the setting.
    pub numbers: Option<String>,
    pub smart: bool,
    pub provider: Option<String>,
    pub sender: Option<String>,
    /// The sending window of its campaigns.
    pub window: Option<String>,
    /// From the start of a run on, in milliseconds.
    pub expires_after: Option<u64>,
    pub max_rejects: Option<String>,
}

/// A schedule that is to be added.
pub struct ScheduleRequest {
    pub name: String,
    pub cron: String,
    pub zone: Zone,
    /// A URL, or the name of a source.
    pub source: String,
    pub query: String,
    pub key: Unique,
    pub per: Per,
    pub catch_up: bool,
    pub options: ScheduleOptions,
}

/// The name of a schedule, which is the first part of the names of its campaigns.
pub fn schedule_name(text: &str) -> Result<String, String> {
    let name = campaign_name(text)?;
    if name.contains('/') {
        return Err(
            "the name contains `/`, which is before the period in names of campaigns".to_owned()
        );
    }
    if name.chars().count() > MAX_NAME {
        return Err(format!("the name is longer than {MAX_NAME} characters"));
    }
    Ok(name)
}

/// A schedule that can be run: its row with what is parsed from it.
struct ReadSchedule<'a> {
    row: &'a ScheduleRow,
    time: CronTime,
    per: Per,
}

impl<'a> ReadSchedule<'a> {
    fn new(row: &'a ScheduleRow) -> Result<Self, Hinted> {
        let invalid = |problem: String| {
            let hint = "`smsq schedule remove` it, and add it again";
            Hinted::new(format!("invalid schedule `{}`: {problem}", row.name), hint)
        };
        let zone = row.timezone.parse().map_err(invalid)?;
        Ok(Self {
            row,
            time: CronTime::new(&row.cron, zone)?,
            per: row.per.parse().map_err(invalid)?,
        })
    }

    fn current(&self) -> Result<Fire, Hinted> {
        let local = read_local(&self.row.fire).ok_or_else(|| {
            let (name, fire) = (&self.row.name, &self.row.fire);
            Hinted::new(
                format!("invalid schedule `{name}`: its next run is `{fire}`"),
                "`smsq schedule pause` and `resume` set it again",
            )
        })?;
        Ok(self.time.fire(local))
    }

    fn next_run(&self, fire: Fire) -> NextRun {
        next_run(self.per, fire)
    }

    fn campaign(&self, period: &str) -> String {
        format!("{}/{period}", self.row.name)
    }
}

fn next_run(per: Per, fire: Fire) -> NextRun {
    NextRun { fire: written(fire.local), period: per.period(fire.local), next_at: fire.at }
}

fn never(name: &str) -> Hinted {
    Hinted::new(format!("schedule `{name}` has no next run"), "check its cron expression")
}

/// Adds a schedule, after its query was run once without importing its rows. `progress` gets their number; `warn` gets what
/// is doubtful about them. Returns the schedule, and how many rows it would import now.
pub async fn add_schedule(
    store: &Store,
    lists: &ListOptions,
    request: &ScheduleRequest,
    actor: &Actor,
    progress: impl FnMut(u64) + Send,
    warn: impl Fn(&str),
) -> Result<(ScheduleRow, u64), OperationError> {
    let ScheduleRequest { name, source, .. } = request;
    if request.key == Unique::None {
        return Err(Hinted::new(
            "invalid key `none`: a schedule needs one",
            "name the column that identifies a recipient in the query, such as `--key customer_id`",
        )
        .into());
    }
    let database = lists.settings.source(source)?;
    if is_url(source) && has_password(source, &database) {
        return Err(Hinted::new(
            "the URL in `--from` has a password, which would be stored with the schedule",
            "describe the database as `[sources.NAME]` in smsq.toml, and use `--from NAME`",
        )
        .into());
    }
    let time = CronTime::new(&request.cron, request.zone.clone())?;
    if store.schedules().named(name).await?.is_some() {
        return Err(exists(name));
    }
    check_campaigns(store, name).await?;
    let until = Until::default();
    let query = lists.settings.query(&request.query, &until);
    let rows = QueryRows::read(&database, &query, progress).await?;
    let count = rows.count();
    // Not before, because the query may take minutes.
    let fire = time.next_after(store.now().await?).ok_or_else(|| never(name))?;
    let options = ListOptions {
        at: Some(When::At(fire.at)),
        ..runs::list_options(lists, &request.options, &request.key, rows, None)?
    };
    let list = PathBuf::from(&request.options.query_name);
    for plan in options.prepare(&[list], None).await? {
        plan.warnings().iter().for_each(|warning| warn(warning));
    }
    let settings = ScheduleSettings {
        name: name.clone(),
        cron: time.expression().to_owned(),
        timezone: time.zone().to_string(),
        source: source.clone(),
        query: request.query.clone(),
        unique_by: request.key.to_string(),
        per: request.per.to_string(),
        options: serde_json::to_string(&request.options).expect("texts and numbers are JSON"),
        catch_up: request.catch_up,
    };
    let detail = format!("added schedule `{name}`: `{}` in {}", settings.cron, settings.timezone);
    let entry = actor.entry(store, VERB, None, detail).await?;
    let next = next_run(request.per, fire);
    if !store.schedules().add(&settings, &next, &entry).await? {
        return Err(exists(name));
    }
    let added = schedule_named(store, name).await?;
    Ok((added, count))
}

/// Fails if a campaign has a name that would belong to the schedule, and no schedule made it.
async fn check_campaigns(store: &Store, name: &str) -> Result<(), OperationError> {
    let prefix = format!("{name}/");
    let campaigns = store.campaigns().await?;
    let is_other = |campaign: &&Campaign| {
        let rest = campaign.name.strip_prefix(&prefix);
        rest.is_some_and(|rest| !is_period(rest))
    };
    match campaigns.iter().find(is_other) {
        None => Ok(()),
        Some(Campaign { name: other, .. }) => Err(Hinted::new(
            format!(
                "there is a campaign `{other}`: names that begin with `{prefix}` would belong to the schedule, which \
                 alone adds messages to them"
            ),
            "choose another name for the schedule",
        )
        .into()),
    }
}

/// Whether a text looks like the period of a schedule, such as `2026-11-24`, `2026-W48`, `2026-11` or
/// `2026-11-24T09:00`.
fn is_period(text: &str) -> bool {
    text.split_once('-').is_some_and(|(year, rest)| {
        year.len() == 4
            && year.bytes().all(|byte| byte.is_ascii_digit())
            && rest.trim_start_matches('W').starts_with(|first: char| first.is_ascii_digit())
    })
}

/// Whether a URL has a password: the name of the database leaves it out.
fn has_password(url: &str, database: &SourceDatabase) -> bool {
    let login = |url: &str| {
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        rest.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'))
    };
    !url.starts_with("sqlite:") && login(url) && !login(database.name())
}

fn exists(name: &str) -> OperationError {
    Hinted::new(
        format!("schedule `{name}` exists already"),
        format!("choose another name, or `smsq schedule remove {name}` first"),
    )
    .into()
}

/// The schedule of that name.
#[boxed]
pub async fn schedule_named(store: &Store, name: &str) -> Result<ScheduleRow, OperationError> {
    if let Some(schedule) = store.schedules().named(name).await? {
        return Ok(schedule);
    }
    let all = store.schedules().all().await?;
    let names = all.iter().map(|schedule| schedule.name.as_str());
    let hint = did_you_mean(name, names)
        .unwrap_or_else(|| "`smsq schedule list` shows the schedules".to_owned());
    Err(Hinted::new(format!("unknown schedule `{name}`"), hint).into())
}

/// Pauses a schedule: it does not run until it is resumed, and what it would have run meanwhile is not missed. Returns false
/// if it was paused already.
#[boxed]
pub async fn pause_schedule(
    store: &Store,
    schedule: &ScheduleRow,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let detail = format!("paused schedule `{}`", schedule.name);
    let entry = actor.entry(store, VERB, None, detail).await?;
    let paused = store.schedules().set_paused(schedule.id, None, &entry).await;
    Ok(paused?)
}

/// Resumes a schedule with its next run after now. Returns false if it was not paused.
#[boxed]
pub async fn resume_schedule(
    store: &Store,
    schedule: &ScheduleRow,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let read = ReadSchedule::new(schedule)?;
    let fire = read.time.next_after(store.now().await?).ok_or_else(|| never(&schedule.name))?;
    let detail = format!("resumed schedule `{}`", schedule.name);
    let entry = actor.entry(store, VERB, None, detail).await?;
    let next = read.next_run(fire);
    let resumed = store.schedules().set_paused(schedule.id, Some(&next), &entry).await;
    Ok(resumed?)
}

/// Removes a schedule. Its campaigns stay.
#[boxed]
pub async fn remove_schedule(
    store: &Store,
    schedule: &ScheduleRow,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let detail = format!("removed schedule `{}`", schedule.name);
    let entry = actor.entry(store, VERB, None, detail).await?;
    Ok(store.schedules().remove(schedule.id, &entry).await?)
}

/// What is shown of an error to who may not control campaigns.
const HIDDEN: &str = "it failed: the role `operate` sees why";

/// A schedule with its last runs.
#[derive(Serialize, ToSchema)]
#[schema(as = Schedule)]
pub struct ScheduleReport {
    pub name: String,
    /// A cron expression of five fields
    pub cron: String,
    pub timezone: String,
    /// The database that the query reads, without a password
    pub source: String,
    /// The columns of the key
    pub key: String,
    /// `day`, `week`, `month` or `run`
    pub per: String,
    pub catch_up: bool,
    /// `active` or `paused`
    pub state: &'static str,
    #[schema(format = DateTime)]
    pub next_at: Option<String>,
    pub created_by: String,
    /// The last runs, the newest first
    pub runs: Vec<RunReport>,
    /// When it runs next, in its time zone; `None`: it is paused.
    #[serde(skip)]
    pub next: Option<String>,
}

/// A run of a schedule, or runs that were missed.
#[derive(Serialize, ToSchema)]
#[schema(as = ScheduleRun)]
pub struct RunReport {
    /// The local time at which it was due
    pub time: String,
    pub period: String,
    pub campaign: String,
    /// `in progress`, `done` or `missed`
    pub state: &'static str,
    #[schema(format = DateTime)]
    pub started_at: String,
    #[schema(format = DateTime)]
    pub finished_at: Option<String>,
    #[serde(flatten)]
    pub counts: RunCountsReport,
    /// Of the last attempt, or why it was missed; the role `read` only sees that there is one
    pub error: Option<String>,
}

/// What became of the rows of a run.
#[derive(Serialize, ToSchema)]
pub struct RunCountsReport {
    pub rows: u64,
    pub accepted: u64,
    /// Rows whose key has a message of the period already
    pub duplicates: u64,
    pub suppressed: u64,
    pub rejected: u64,
    /// Why rows were rejected
    pub reasons: Option<String>,
}

impl From<RunCounts> for RunCountsReport {
    fn from(counts: RunCounts) -> Self {
        Self {
            rows: counts.rows,
            accepted: counts.accepted,
            duplicates: counts.duplicates(),
            suppressed: counts.suppressed,
            rejected: counts.rejected,
            reasons: counts.reasons,
        }
    }
}

impl From<ScheduleRun> for RunReport {
    fn from(run: ScheduleRun) -> Self {
        Self {
            time: run.fire,
            period: run.period,
            campaign: run.campaign,
            state: run.state.as_str(),
            started_at: run.started_at.to_string(),
            finished_at: run.finished_at.map(|at| at.to_string()),
            counts: run.counts.into(),
            error: run.error,
        }
    }
}

impl ScheduleReport {
    /// Without the words of the database of its query.
    #[must_use]
    pub fn without_words(mut self) -> Self {
        for run in &mut self.runs {
            run.error = run.error.take().map(|_| HIDDEN.to_owned());
        }
        self
    }

    fn new(schedule: ScheduleRow, runs: Vec<ScheduleRun>) -> Self {
        let zone = Zone::from_str(&schedule.timezone).ok().filter(|_| !schedule.is_paused);
        let next_at = (!schedule.is_paused).then(|| schedule.next_at.to_string());
        let settings = schedule.settings;
        Self {
            next: zone.map(|zone| zone.format_local(schedule.next_at)),
            name: settings.name,
            cron: settings.cron,
            timezone: settings.timezone,
            source: settings.source,
            key: settings.unique_by,
            per: settings.per,
            catch_up: settings.catch_up,
            state: if schedule.is_paused { "paused" } else { "active" },
            next_at,
            created_by: schedule.created_by,
            runs: runs.into_iter().map(RunReport::from).collect(),
        }
    }

    /// `0 9 * * * Europe/Berlin, one message per customer_id and day`.
    pub fn describe(&self) -> String {
        let Self { cron, timezone, key, per, .. } = self;
        format!("{cron} {timezone}, one message per {key} and {per}")
    }
}

/// All schedules with their last runs, in the order of their names.
#[boxed]
pub async fn schedule_reports(store: &Store) -> Result<Vec<ScheduleReport>, StoreError> {
    let mut reports = Vec::new();
    let now = store.now().await?;
    for schedule in store.schedules().all().await? {
        let runs = store.schedules().runs(schedule.id, LISTED_RUNS, now).await;
        let runs = runs?;
        reports.push(ScheduleReport::new(schedule, runs));
    }
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_room_for_the_period() {
        assert_eq!(schedule_name(" birthday ").as_deref(), Ok("birthday"));
        for bad in ["", "a/b", "..", &"x".repeat(61)] {
            assert!(schedule_name(bad).is_err(), "{bad:?}");
        }
    }
}

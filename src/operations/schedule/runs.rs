//! Runs schedules that are due: one process at a time has the lease of a schedule. A run that was interrupted is repeated
//! into the same campaign, and adds what is missing.

use std::convert::Infallible;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use smsq_import::{Options, QueryRows, RejectLimit, TextSource, Unique, When};
use smsq_message::phone::{Dialling, Numbers};
use smsq_message::text::{Hinted, counted};
use smsq_message::window::SendWindow;
use smsq_process::boxed;
use smsq_process::jobs::{JobRules, Jobs, Until};
use smsq_store::{
    Campaign, CampaignStatus, INTERRUPTED, MissedRun, NewRun, RunCounts, ScheduleRow, Store,
    StoreError,
};
use tokio::task::JoinSet;

use super::cron::{Fire, Missed, written};
use super::{ReadSchedule, ScheduleOptions, VERB};
use crate::campaign_action::Refused;
use crate::lists::{Cancelled, ListOptions, PeriodCampaign};
use crate::window::WindowRequest;
use crate::{Actor, OperationError};

/// How long a process has a schedule without a renewal.
const LEASE: Duration = Duration::from_secs(60);
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// How often schedules are looked for that are due.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a process that ends waits for the database.
const LAST_STATEMENT: Duration = Duration::from_secs(2);
/// How many schedules a process runs at once: one whose source is slow does not delay the others.
const AT_ONCE: usize = 4;
/// The wait before a run that failed is repeated; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(30);
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Runs the schedules of a database.
pub struct Scheduler {
    store: Store,
    /// What the configuration says about lists.
    lists: ListOptions,
    /// The folder for rejected rows.
    rejects: PathBuf,
    /// This process, among all that have the database.
    holder: i64,
    /// Each run is a job: a query may block its thread.
    jobs: Jobs,
}

/// An option that was stored as a text.
fn parsed<T: FromStr<Err = String>>(text: Option<&str>) -> Result<Option<T>, Hinted> {
    text.map(str::parse)
        .transpose()
        .map_err(|problem| Hinted::new(problem, "remove the schedule, and add it again"))
}

/// The options of an import of the rows of a query.
pub(super) fn list_options(
    lists: &ListOptions,
    options: &ScheduleOptions,
    key: &Unique,
    rows: QueryRows,
    period: Option<PeriodCampaign>,
) -> Result<ListOptions, Hinted> {
    let max_rejects: Option<RejectLimit> = parsed(options.max_rejects.as_deref())?;
    let window: Option<SendWindow> = parsed(options.window.as_deref())?;
    let of_settings = lists.list.dialling;
    let dialling = Dialling {
        region: parsed(options.region.as_deref())?.or(of_settings.region),
        numbers: match options.numbers.as_deref() {
            Some("international") => Numbers::International,
            Some("national") => Numbers::National,
            _ => of_settings.numbers,
        },
        ..of_settings
    };
    let expires = options.expires_after.map(Duration::from_millis);
    Ok(ListOptions {
        list: Options {
            query: Some(Arc::new(rows)),
            text: match &options.text {
                Some(text) => TextSource::Text(text.clone()),
                None => TextSource::Column,
            },
            columns: options.columns.clone(),
            dialling,
            unique: Some(key.clone()),
            smart: options.smart,
            ..lists.list.clone()
        },
        campaign: period.as_ref().map(|period| period.name.clone()),
        provider: options.provider.clone(),
        sender: options.sender.clone(),
        max_rejects: max_rejects.or(lists.max_rejects),
        expires: expires.map(When::In),
        window: window.map(WindowRequest::from).unwrap_or_default(),
        may_change: false,
        cancelled: Cancelled::Refuse,
        period,
        ..lists.clone()
    })
}

/// How long to wait after `attempts` failed ones.
fn wait(attempts: i32) -> Duration {
    let doubled = u32::try_from(attempts).unwrap_or(0).min(10);
    FIRST_WAIT.saturating_mul(1 << doubled).min(MAX_WAIT)
}

impl Scheduler {
    pub fn new(store: Store, lists: ListOptions, rejects: PathBuf, jobs: Jobs) -> Self {
        Self { store, lists, rejects, holder: i64::from(rand::random::<u32>()) + 1, jobs }
    }

    /// Runs schedules when they are due, until the process stops. Another process or the next one repeats what it
    /// interrupts.
    #[boxed]
    pub async fn run(self: Arc<Self>) {
        let stop = self.jobs.stop();
        let mut running = JoinSet::new();
        let (mut is_down, mut has_leased) = (false, false);
        loop {
            if running.len() < AT_ONCE {
                let Some(leased) = stop.unless_begun(self.lease()).await else {
                    break;
                };
                match leased {
                    Ok(Some(schedule)) => {
                        (is_down, has_leased) = (false, true);
                        running.spawn(Arc::clone(&self).run_due(schedule));
                        continue;
                    }
                    Ok(None) => is_down = false,
                    Err(error) if !is_down => {
                        is_down = true;
                        tracing::warn!(%error, "cannot look for schedules that are due");
                    }
                    Err(_) => {}
                }
            }
            tokio::select! {
                () = stop.begun() => break,
                Some(_) = running.join_next() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        let ended = async { while running.join_next().await.is_some() {} };
        if stop.within_but(LAST_STATEMENT, ended).await.is_none() || !has_leased {
            return;
        }
        // The database may be the reason to stop; then another process takes the schedules when the leases end.
        let schedules = self.store.schedules();
        let released = schedules.release_all(self.holder);
        if let Ok(Err(error)) = tokio::time::timeout(LAST_STATEMENT, released).await {
            tracing::warn!(%error, "cannot release schedules");
        }
    }

    /// The jobs of the process, among them the runs.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    async fn lease(&self) -> Result<Option<ScheduleRow>, StoreError> {
        let now = self.store.now().await?;
        let until = now.plus(LEASE);
        self.store.schedules().lease_due(self.holder, now, until).await
    }

    /// Runs a schedule whose lease this process has. The lease is renewed here, while the run blocks its thread.
    async fn run_due(self: Arc<Self>, schedule: ScheduleRow) {
        let (scheduler, row) = (Arc::clone(&self), schedule.clone());
        let run = self.jobs.start(JobRules::default(), |until| async move {
            scheduler.run_leased(&row, &until).await
        });
        let done = tokio::select! {
            biased;
            done = run => done,
            // The run is interrupted.
            () = self.keep_lease(schedule.id) => return,
        };
        if let Ok(Err(error)) = done {
            // It is due again when the lease ends.
            tracing::warn!(schedule = schedule.name, %error, "cannot run a schedule");
        }
    }

    /// Returns when another process has the schedule, or when it was removed.
    async fn keep_lease(&self, id: i64) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let renewed = async {
                let until = self.store.now().await?.plus(LEASE);
                self.store.schedules().renew(id, self.holder, until).await
            };
            if let Ok(false) = renewed.await {
                return;
            }
        }
    }

    /// Says that a run which somebody asked for is still in progress.
    async fn keep_run(&self, run: &NewRun) -> Infallible {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let renewed = async {
                let until = self.store.now().await?.plus(LEASE);
                self.store.schedules().renew_run(run, until).await
            };
            // It is tried again.
            let _: Result<(), StoreError> = renewed.await;
        }
    }

    async fn run_leased(
        &self,
        schedule: &ScheduleRow,
        until: &Until,
    ) -> Result<(), OperationError> {
        let read = ReadSchedule::new(schedule)?;
        let (due, now) = (read.current()?, self.store.now().await?);
        let (fire, skipped) =
            if schedule.catch_up { (due, None) } else { read.time.latest(due, now) };
        let run = progress(&read, fire);
        let missed = skipped.map(|skipped| missed_run(&read, skipped));
        let after = Some((schedule.fire.as_str(), missed.as_ref()));
        let schedules = self.store.schedules();
        if !schedules.begin_run(&run, after, now).await? {
            return Ok(());
        }
        let done = self.import(&read, &run, until).await;
        if until.check().is_err() {
            // The run is repeated, and adds what is missing.
            return Ok(());
        }
        let now = self.store.now().await?;
        let next = read
            .time
            .next(fire.local)
            .map(|next| read.next_run(next))
            .ok_or_else(|| super::never(&schedule.name))?;
        match done {
            Ok(counts) => {
                let is_first = schedules.finish_run(&run, Ok(&counts), Some(&next), now).await?;
                if is_first {
                    let (accepted, rejected) = (counts.accepted, counts.rejected);
                    let (schedule, fire) = (&schedule.name, &run.fire);
                    tracing::info!(schedule, fire, accepted, rejected, "ran a schedule");
                }
            }
            // Nothing can be stored now; the lease ends, and the run is repeated.
            Err(error) if error.is_temporary() => return Err(error),
            Err(error) => {
                let is_refused = matches!(error, OperationError::Refused(_));
                let attempts = if run.fire == schedule.fire { schedule.attempts } else { 0 };
                let again_at = now.plus(wait(attempts));
                let (schedule, fire, reason) = (&schedule.name, &run.fire, error.to_string());
                // What somebody cancelled is not tried again.
                if again_at < next.next_at && !is_refused {
                    tracing::warn!(schedule, fire, error = reason, "a run failed, and is repeated");
                    schedules.postpone_run(&run, &reason, again_at).await?;
                } else {
                    tracing::warn!(schedule, fire, error = reason, "a run was missed");
                    let outcome = Err(reason.as_str());
                    schedules.finish_run(&run, outcome, Some(&next), now).await?;
                }
            }
        }
        Ok(())
    }

    /// Runs a schedule because somebody asks for it, in the present period; the next run stays as it is. Returns the campaign
    /// and what became of the rows.
    #[boxed]
    pub async fn run_now(
        self: Arc<Self>,
        schedule: ScheduleRow,
        actor: Actor,
    ) -> Result<(String, RunCounts), OperationError> {
        let run = self.begin_asked(&schedule, &actor).await?;
        let (scheduler, asked) = (Arc::clone(&self), run.clone());
        let job = self.jobs.start(JobRules::default(), |until| async move {
            scheduler.run_asked(&schedule, &asked, &until).await
        });
        let done = tokio::select! {
            biased;
            done = job => done,
            never = self.keep_run(&run) => match never {},
        };
        done.unwrap_or_else(|_| Err(interrupted().into()))
    }

    async fn begin_asked(
        &self,
        schedule: &ScheduleRow,
        actor: &Actor,
    ) -> Result<NewRun, OperationError> {
        let read = ReadSchedule::new(schedule)?;
        let now = self.store.now().await?;
        let local = read.time.local(now);
        let fire = Fire { local, at: now };
        let mut run = progress(&read, fire);
        // Another one than that of a fire in this minute.
        run.fire = local.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        run.asked_until = Some(now.plus(LEASE));
        if read.per == super::cron::Per::Run {
            run.period.clone_from(&run.fire);
            run.campaign = read.campaign(&run.period);
        }
        let campaign = &run.campaign;
        let detail = format!("ran schedule `{}` into campaign `{campaign}`", schedule.name);
        self.store.record(&actor.who, VERB, Some(campaign), &detail).await?;
        if !self.store.schedules().begin_run(&run, None, now).await? {
            return Err(Hinted::new(
                format!("schedule `{}` was removed", schedule.name),
                "`smsq schedule list` shows the schedules",
            )
            .into());
        }
        Ok(run)
    }

    async fn run_asked(
        &self,
        schedule: &ScheduleRow,
        run: &NewRun,
        until: &Until,
    ) -> Result<(String, RunCounts), OperationError> {
        let read = ReadSchedule::new(schedule)?;
        let mut done = self.import(&read, run, until).await;
        if until.check().is_err() {
            done = Err(interrupted().into());
        }
        let reason = done.as_ref().map_err(ToString::to_string);
        let outcome = reason.as_ref().map(|counts| *counts).map_err(String::as_str);
        let now = self.store.now().await?;
        self.store.schedules().finish_run(run, outcome, None, now).await?;
        Ok((run.campaign.clone(), done?))
    }

    /// Imports the rows that the query has now into the campaign of a run.
    async fn import(
        &self,
        read: &ReadSchedule<'_>,
        run: &NewRun,
        until: &Until,
    ) -> Result<RunCounts, OperationError> {
        let (schedule, settings) = (read.row, &self.lists.settings);
        let campaign = self.store.campaign(&run.campaign).await?;
        let is_cancelled = |campaign: &Campaign| campaign.state == CampaignStatus::Cancelled;
        // Somebody may cancel it during the query, too, which the import finds.
        if campaign.as_ref().is_some_and(is_cancelled) {
            return Err(Refused::takes_no_messages(&run.campaign).into());
        }
        let mut options: ScheduleOptions =
            serde_json::from_str(&schedule.options).map_err(|error| {
                let name = &schedule.name;
                Hinted::new(
                    format!("invalid schedule `{name}`: {error}"),
                    "remove it, and add it again",
                )
            })?;
        let schedules = self.store.schedules();
        let is_first = !schedules.has_opened(schedule.id, &run.campaign).await?;
        if !is_first {
            // Somebody may have changed them since.
            (options.provider, options.sender, options.window) = (None, None, None);
        }
        let database = settings.source(&schedule.source)?;
        let query = settings.query(&schedule.query, until);
        let rows = QueryRows::read(&database, &query, |_| ()).await?;
        if rows.count() == 0 {
            return Ok(RunCounts::default());
        }
        let Ok(key) = schedule.unique_by.parse::<Unique>();
        let file = PathBuf::from(&options.query_name);
        let period = PeriodCampaign { name: run.campaign.clone(), is_first };
        let mut lists = list_options(&self.lists, &options, &key, rows, Some(period))?;
        lists.list.rejects = Some(self.rejects_file(&run.campaign)?);
        let plans = lists.prepare(&[file], Some(&self.store)).await?;
        lists.check_rejects(&plans, |_| ()).await?;
        let actor =
            Actor { who: schedule.created_by.clone(), by: format!("schedule `{}`", schedule.name) };
        let times = lists.schedule(self.store.now().await?)?;
        let mut counts = RunCounts::default();
        for plan in &plans {
            let tell = |message: &str| tracing::info!(schedule = schedule.name, "{message}");
            let imported = lists.import(plan, times, &self.store, &actor, tell, |_, _| ());
            let imported = until.unless_over(imported).await;
            let summary = imported.unwrap_or_else(|_| Err(interrupted().into()))?.0.summary;
            let reasons = summary
                .frequent_reasons()
                .into_iter()
                .map(|(reason, count)| format!("{reason} ({count})"))
                .collect::<Vec<_>>()
                .join(", ");
            counts = RunCounts {
                rows: summary.rows,
                accepted: summary.accepted,
                suppressed: summary.suppressed,
                rejected: summary.rejected,
                reasons: Some(reasons).filter(|reasons| !reasons.is_empty()),
            };
        }
        Ok(counts)
    }

    /// The file for the rejected rows of a campaign, in a folder that only this user can read.
    fn rejects_file(&self, campaign: &str) -> Result<PathBuf, Hinted> {
        let folder = &self.rejects;
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(|error| Hinted {
            message: format!("cannot create `{}`: {error}", folder.display()),
            hint: None,
        })?;
        let name = campaign.replace('/', "-");
        Ok(folder.join(format!("{name}.rejects.jsonl")))
    }
}

fn interrupted() -> Hinted {
    Hinted::new(INTERRUPTED, "run it again: only what is missing is added")
}

fn progress(read: &ReadSchedule<'_>, fire: Fire) -> NewRun {
    let period = read.per.period(fire.local);
    NewRun {
        schedule_id: read.row.id,
        fire: written(fire.local),
        campaign: read.campaign(&period),
        keys_until: read.time.period_end(read.per, fire.local),
        period,
        asked_until: None,
    }
}

fn missed_run(read: &ReadSchedule<'_>, missed: Missed) -> MissedRun {
    let period = read.per.period(missed.last.local);
    let last = written(missed.last.local);
    let error = if missed.count == 1 {
        "no process ran it".to_owned()
    } else {
        let first = written(missed.first.local);
        let count = counted(missed.count, "run");
        format!("no process ran it: {count} from {first} to {last}")
    };
    MissedRun { campaign: read.campaign(&period), fire: last, period, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_up_to_ten_minutes() {
        let seconds = |attempts| wait(attempts).as_secs();
        assert_eq!([0, 1, 2, 4, 5, 100].map(seconds), [30, 60, 120, 480, 600, 600]);
    }
}

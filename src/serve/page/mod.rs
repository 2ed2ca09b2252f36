//! The pages: complete without JavaScript, for a phone, in the dark, by keyboard. A live page is asked again for its
//! changing part.

mod actions;
mod attempts;
mod events;
mod snapshot;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Form, Path, Query, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::actions::{Action, ActionError};
use self::attempts::{AttemptLine, attempts, may_have_earlier};
use self::events::{TimelineEvent, events};
use self::snapshot::Details;
use super::access::{AccessError, Identity, Permission};
use super::guard::{ClientAddress, SameSite, Visitor, now};
use super::intake::rejected_rows;
use super::problem::Problem;
use super::{ServerState, until_stopped};
use crate::activity::{Bottleneck, ProviderActivity};
use crate::phone::{Phone, mask};
use crate::report::{self, Format, Listing, Report, ReportOptions, delivery, hide, states};
use crate::sms::Timestamp;
use crate::store::report::FailureRecord;
use crate::store::{Campaign, SmsFilter, Worker};
use crate::text::{duration, printable_line};

pub(super) use self::snapshot::{Page, Snapshot, refresh};

/// How long a page waits for a change before it says that the change continues; shorter than a request may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may take to read the next part of a file.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Rows of lists on a page.
const ROWS: i64 = 200;
const SCRIPT: &str = include_str!("../../../templates/serve/page.js");
const STYLE: &str = include_str!("../../../templates/serve/serve.css");

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../templates/serve/", $name)))),*]
    };
}

/// All templates. They are checked by a test, so they can be rendered.
static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = report::environment().expect("a test renders the report");
    for (name, source) in templates![
        "layout.html",
        "login.html",
        "overview.html",
        "workers.html",
        "campaign.html",
        "confirm.html",
        "done.html",
        "search.html",
        "suppression.html",
        "audit.html",
    ] {
        let added = environment.add_template(name, source);
        added.expect("a test parses every template");
    }
    environment
});

/// The pages have attributes `style` with numbers that this program has computed, and the report has a style of its own.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; style-src-attr 'unsafe-inline'; \
     script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'";
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; \
     base-uri 'none'; form-action 'none'";

pub(super) fn routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/", get(overview))
        .route("/style.css", get(style))
        .route("/page.js", get(script))
        .route("/robots.txt", get(robots))
        .route("/login", get(overview).post(log_in))
        .route("/logout", post(log_out))
        .route("/search", get(search))
        .route("/suppression", get(suppression).post(suppress))
        .route("/audit", get(audit))
        .route("/campaigns/{name}", get(campaign))
        .route("/campaigns/{name}/report.html", get(report_page))
        .route("/campaigns/{name}/failed.csv", get(failed_csv))
        .route("/campaigns/{name}/undelivered.csv", get(undelivered_csv))
        .route("/campaigns/{name}/sent.csv", get(sent_csv))
        .route("/campaigns/{name}/{action}", get(ask).post(act))
        .route("/imports/{id}/rejects.csv", get(rejects_csv))
}

fn asset(kind: &'static str, text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        // Another version of the program may have other files at the same address.
        (
            header::CACHE_CONTROL,
            HeaderValue::from_static("max-age=60"),
        ),
    ];
    (headers, text).into_response()
}

async fn style() -> Response {
    asset(
        "text/css; charset=utf-8",
        format!("{}{STYLE}", report::STYLE),
    )
}

async fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT.to_owned())
}

async fn robots() -> Response {
    asset(
        "text/plain; charset=utf-8",
        "User-agent: *\nDisallow: /\n".to_owned(),
    )
}

/// A page with its security policy.
fn render(status: StatusCode, name: &str, values: Value) -> Response {
    let page = TEMPLATES
        .get_template(name)
        .and_then(|page| page.render(values));
    match page {
        Ok(page) => {
            let policy = HeaderValue::from_static(PAGE_POLICY);
            (
                status,
                [(header::CONTENT_SECURITY_POLICY, policy)],
                Html(page),
            )
                .into_response()
        }
        Err(error) => {
            tracing::error!(%error, page = name, "a page could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

pub(super) fn log_in_page(problem: Option<&str>) -> Response {
    render(StatusCode::UNAUTHORIZED, "login.html", context! { problem })
}

/// A problem as a page.
fn problem_page(visitor: &Visitor, problem: &Problem, back: &str) -> Response {
    let values = context! {
        title => problem.status.canonical_reason(),
        message => problem.detail.as_str(),
        back,
        ..visitor_values(visitor, "")
    };
    render(problem.status, "done.html", values)
}

fn visitor_values(visitor: &Visitor, section: &str) -> Value {
    context! {
        who => visitor.0.name.as_str(),
        role => visitor.0.role.as_str(),
        may_operate => visitor.may(Permission::Operate),
        section,
    }
}

#[derive(Deserialize)]
struct LogIn {
    token: String,
}

async fn log_in(
    State(shared): State<Arc<ServerState>>,
    _: SameSite,
    ClientAddress(address): ClientAddress,
    Form(form): Form<LogIn>,
) -> Response {
    match shared.access.log_in(&form.token, address, now()) {
        Ok((who, cookie)) => {
            tracing::info!(who = who.name, "logged in");
            let mut response = Redirect::to("/").into_response();
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        }
        Err(AccessError::TooManyAttempts) => {
            let mut response = log_in_page(Some("Too many attempts: try again in a minute."));
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response
        }
        Err(AccessError::Forbidden) => {
            log_in_page(Some("This token only sends messages: it shows no pages."))
        }
        Err(_) => log_in_page(Some("Unknown token. The printed link works only once.")),
    }
}

async fn log_out(
    State(shared): State<Arc<ServerState>>,
    _: Visitor,
    headers: HeaderMap,
) -> Response {
    let mut response = Redirect::to("/").into_response();
    let cookie = shared.access.log_out(&headers, now());
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// The address of a campaign's page.
fn path_of(name: &str) -> String {
    format!("/campaigns/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

#[derive(Deserialize)]
struct Live {
    live: Option<u64>,
}

fn ago(age: Duration) -> String {
    match age.as_secs() {
        0..3 => "now".to_owned(),
        seconds => format!("{} ago", duration(Duration::from_secs(seconds))),
    }
}

/// `98/s`, `12/min`.
fn per_second(rate: f64) -> String {
    if rate >= 1.0 {
        format!("{rate:.0}/s")
    } else {
        format!("{:.0}/min", (rate * 60.0).max(1.0))
    }
}

/// How long a queue lasts at this rate.
fn eta(queued: u64, rate: f64) -> Option<String> {
    let queued = u32::try_from(queued).map_or(f64::MAX, f64::from);
    if queued == 0.0 || rate <= 0.0 {
        return None;
    }
    let seconds = (queued / rate).min(1e9);
    Some(duration(Duration::from_secs_f64(seconds.max(1.0).round())))
}

/// Nothing, if a page that asks for its changing part has it already.
fn unchanged(live: &Live, snapshot: &Snapshot) -> Option<Response> {
    let is_same = live.live == Some(snapshot.revision);
    is_same.then(|| StatusCode::NO_CONTENT.into_response())
}

async fn overview(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Query(live): Query<Live>,
) -> Response {
    let snapshot = shared.page.recent().await;
    if let Some(response) = unchanged(&live, &snapshot) {
        return response;
    }
    let rate = snapshot.rate(None);
    let campaigns: Vec<Value> = snapshot
        .campaigns
        .iter()
        .rev()
        .map(|one| {
            let id = snapshot.settings_of(&one.campaign).map(|one| one.id);
            let rate = id.and_then(|id| snapshot.rate(Some(id)));
            context! {
                name => one.campaign.as_str(),
                path => path_of(&one.campaign),
                state => one.state,
                reason => one.state_reason.as_deref(),
                states => states(&one.totals),
                rate => rate.map(per_second),
            }
        })
        .collect();
    let values = context! {
        is_live => true,
        path => "/",
        revision => snapshot.revision,
        is_counting => snapshot.revision == 0,
        counted => ago(snapshot.age()),
        imported => snapshot.totals.imported,
        states => states(&snapshot.totals),
        delivery => delivery(&snapshot.totals),
        rate => rate.map(per_second),
        limited_by => rate.and_then(|_| limited_by(&snapshot)),
        eta => rate.and_then(|rate| eta(snapshot.totals.queued, rate)),
        last_hour => last_hour(&snapshot, None),
        campaigns,
        ..worker_values(&snapshot)
    };
    let values = context! { ..values, ..visitor_values(&visitor, "overview") };
    render(StatusCode::OK, "overview.html", values)
}

/// What the workers and the providers do.
fn worker_values(snapshot: &Snapshot) -> Value {
    let now = snapshot.counted_at;
    let activity = |id: i64| snapshot.activities.get(&id);
    let workers: Vec<Value> = snapshot
        .workers
        .iter()
        .map(|(worker, sending)| {
            let age = now.since(worker.heartbeat_at);
            context! {
                id => worker.id,
                host => worker.host.as_str(),
                pid => worker.pid,
                concurrency => u64::try_from(worker.concurrency).unwrap_or(0),
                rate => activity(worker.id).filter(|one| one.rate > 0.0).map(|one| per_second(one.rate)),
                limited_by => activity(worker.id).and_then(|one| one.bottleneck).map(limit_phrase),
                version => activity(worker.id).map(|one| one.version.as_str()),
                heartbeat => ago(age),
                is_silent => is_silent(worker, now),
                sending,
            }
        })
        .collect();
    let providers = provider_values(snapshot);
    context! {
        workers,
        providers,
        has_queue => snapshot.totals.queued > 0,
    }
}

/// Whether the heartbeat of a worker is older than its lease, so that it counts as dead.
fn is_silent(worker: &Worker, now: Timestamp) -> bool {
    let lease = u64::try_from(worker.lease_ms).unwrap_or(0);
    now.since(worker.heartbeat_at) > Duration::from_millis(lease)
}

/// What limits the worker that sends most.
fn limited_by(snapshot: &Snapshot) -> Option<&'static str> {
    let alive = snapshot.workers.iter().map(|(worker, _)| worker);
    let alive = alive.filter(|worker| !is_silent(worker, snapshot.counted_at));
    let activities = alive.filter_map(|worker| snapshot.activities.get(&worker.id));
    let busiest = activities.max_by(|one, other| one.rate.total_cmp(&other.rate));
    busiest?.bottleneck.map(limit_phrase)
}

/// What limits a worker, as a phrase after "limited by".
fn limit_phrase(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::RateLimit => "the rate limit",
        Bottleneck::Concurrency => "the answers of the provider, all requests are in flight",
        Bottleneck::Provider => "the provider, which is unavailable or asked to slow down",
        Bottleneck::Database => "the commits of the database",
        Bottleneck::Cpu => "the processors of its machine",
    }
}

/// The providers as their workers see them: the worst state, the slowest answers, the last error.
fn provider_values(snapshot: &Snapshot) -> Vec<Value> {
    let mut providers: BTreeMap<&str, Vec<&ProviderActivity>> = BTreeMap::new();
    for activity in snapshot.activities.values() {
        for one in &activity.providers {
            providers.entry(&one.name).or_default().push(one);
        }
    }
    for pause in &snapshot.pauses {
        providers.entry(&pause.provider).or_default();
    }
    let value = |(name, seen): (&str, Vec<&ProviderActivity>)| {
        let pause = snapshot.pauses.iter().find(|pause| pause.provider == name);
        let error = seen.iter().filter_map(|one| one.last_error.as_ref());
        let error = error.max_by_key(|error| error.at);
        let slowest = seen.iter().filter_map(|one| one.latency_ms);
        let slowest = slowest.max_by(|one, other| one.p95.total_cmp(&other.p95));
        let is_open = seen.iter().any(|one| one.breaker_open);
        let (state, words) = match pause {
            Some(pause) => ("waiting", format!("asked to wait until {}", pause.until)),
            None if is_open => ("open", "away: single messages test it".to_owned()),
            None => ("closed", "working".to_owned()),
        };
        let limit = seen.iter().find(|one| !one.rate_limit.is_empty());
        let limit = limit.map(|one| format!("at most {}", one.rate_limit));
        let accepted_at = seen.iter().filter_map(|one| one.last_success_at).max();
        let accepted = accepted_at.map(|at| {
            format!(
                "accepted the last message {}",
                ago(snapshot.counted_at.since(at))
            )
        });
        let facts: Vec<String> = limit.into_iter().chain(accepted).collect();
        let reason = pause.map(|pause| pause.reason.as_str());
        let reason = reason.or(error.map(|error| error.reason.as_str()));
        context! {
            name, state, words,
            facts => facts.join(" · "),
            latency => slowest.map(|one| format!("{:.0} ms, 95 % in {:.0} ms", one.p50, one.p95)),
            error => reason.map(|reason| report::plain_reason(reason).into_owned()),
        }
    };
    providers.into_iter().map(value).collect()
}

/// The chart of the last hour, with its events.
fn last_hour(snapshot: &Snapshot, campaign: Option<&Campaign>) -> Option<Value> {
    let timeline = snapshot.timeline(campaign.map(|one| one.id))?;
    let local = report::LocalTime::system();
    let campaign = campaign.map(|one| (one.id, one.name.as_str()));
    let (from, width) = (timeline.from, timeline.width);
    let found = events(
        &snapshot.changes,
        &snapshot.last_hour,
        campaign,
        from,
        width,
    );
    let events: Vec<Value> = found
        .into_iter()
        .map(|event| {
            let columns = event.at.since(from).as_secs_f64() / width.as_secs_f64();
            let TimelineEvent { at, who, what } = event;
            context! { x => format!("{:.1}", columns * 10.0), at => local.tick(at, width), who, what }
        })
        .collect();
    Some(context! { events, ..report::chart(&timeline, &local) })
}

/// What is known of a campaign besides its report.
fn campaign_values(snapshot: &Snapshot, name: &str) -> Value {
    let summary = snapshot.campaigns.iter().find(|one| one.campaign == name);
    let settings = snapshot.settings_of(name);
    let id = settings.map(|one| one.id);
    let rate = id.and_then(|id| snapshot.rate(Some(id)));
    let limit = settings.filter(|one| !one.rate.0.is_empty());
    context! {
        state => summary.map(|one| one.state),
        state_reason => summary.and_then(|one| one.state_reason.as_deref()),
        rate => rate.map(per_second),
        limit => limit.map(|one| one.rate.to_string()),
        limited_by => rate.and_then(|_| limited_by(snapshot)),
        eta => summary.and_then(|one| eta(one.totals.queued, rate?)),
        last_hour => settings.and_then(|one| last_hour(snapshot, Some(one))),
        next => summary.and_then(|one| one.next.describe()),
        window => summary.and_then(|one| Some(one.window.as_ref()?.describe().to_owned())),
    }
}

async fn campaign(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(name): Path<String>,
    Query(live): Query<Live>,
) -> Response {
    let snapshot = shared.page.recent().await;
    let known = snapshot.settings_of(&name);
    if snapshot.revision > 0 && known.is_none() {
        let detail = format!("unknown campaign `{name}`");
        return problem_page(&visitor, &Problem::not_found(detail), "/");
    }
    let details = shared.page.details(&name).await;
    if details.is_some()
        && let Some(response) = unchanged(&live, &snapshot)
    {
        return response;
    }
    let may_operate = visitor.may(Permission::Operate);
    let summary = snapshot.campaigns.iter().find(|one| one.campaign == name);
    let actions: Vec<Value> = known
        .map(|campaign| {
            let totals = summary.map(|one| one.totals).unwrap_or_default();
            Action::possible(campaign, &totals)
        })
        .unwrap_or_default()
        .into_iter()
        .map(|action| {
            context! { name => action.as_str(), label => action.label(), is_dangerous => action.is_dangerous() }
        })
        .collect();
    let counts = summary.map(|one| {
        context! {
            imported => one.totals.imported,
            states => states(&one.totals),
            delivery => delivery(&one.totals),
        }
    });
    let rejected = details.as_ref().map(|details| details.rejected.clone());
    let report = details
        .as_ref()
        .map(|details| report_values(details, may_operate));
    let values = context! {
        is_live => true,
        path => path_of(&name),
        revision => snapshot.revision,
        name => name.as_str(),
        is_counted => counts.is_some() || report.is_some(),
        counted => ago(snapshot.age()),
        rejected => Value::from(Serde(rejected)),
        actions,
        ..campaign_values(&snapshot, &name)
    };
    let values = context! { ..values, ..worker_values(&snapshot) };
    let values = context! { ..values, ..visitor_values(&visitor, "campaign") };
    // The counts are read more often than the rest.
    let report = report.unwrap_or_else(|| context! {});
    let values = context! { ..values, ..counts.unwrap_or_else(|| context! {}) };
    let values = context! { ..values, ..report };
    render(StatusCode::OK, "campaign.html", values)
}

/// The sections of a report.
fn report_values(details: &Details, is_whole: bool) -> Value {
    let mut failures: Vec<FailureRecord> = details.failures.clone();
    let report = if is_whole {
        &details.report
    } else {
        failures.iter_mut().for_each(hide);
        &details.masked
    };
    report::view(report, &failures)
}

fn unknown_campaign(name: &str) -> Problem {
    Problem::not_found(format!("unknown campaign `{name}`"))
}

/// Asks whether to make a change.
async fn ask(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path((name, action)): Path<(String, String)>,
    Query(given): Query<BTreeMap<String, String>>,
) -> Response {
    match question(&shared, &visitor, &name, &action, &given, None).await {
        Ok(page) => page,
        Err(problem) => problem_page(&visitor, &problem, &path_of(&name)),
    }
}

async fn question(
    shared: &ServerState,
    visitor: &Visitor,
    name: &str,
    action: &str,
    given: &BTreeMap<String, String>,
    problem: Option<(StatusCode, &str)>,
) -> Result<Response, Problem> {
    visitor.need(Permission::Operate)?;
    let action = Action::of(action);
    let action = action.ok_or_else(|| Problem::not_found("there is nothing at this address"))?;
    let campaign = shared.store.campaign(name).await?;
    let campaign = campaign.ok_or_else(|| unknown_campaign(name))?;
    action.operation().check(&campaign)?;
    let totals = shared.store.totals(Some(campaign.id)).await?;
    let named = action.named(&shared.store, &campaign).await?;
    let values = context! {
        named => named.map(|named| format!("{}-{}", named.count, named.newest)),
        action => action.as_str(),
        label => action.label(),
        is_dangerous => action.is_dangerous(),
        question => action.question(&campaign, &totals),
        warning => action.warning(),
        fields => Value::from(Serde(action.fields(&campaign, given))),
        path => path_of(name),
        problem => problem.map(|(_, problem)| problem),
        ..visitor_values(visitor, "campaign")
    };
    let status = problem.map_or(StatusCode::OK, |(status, _)| status);
    Ok(render(status, "confirm.html", values))
}

/// Makes a change.
async fn act(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path((name, action)): Path<(String, String)>,
    Form(given): Form<BTreeMap<String, String>>,
) -> Response {
    match change(&shared, &visitor, &name, &action, &given).await {
        Ok(page) => page,
        Err(problem) => problem_page(&visitor, &problem, &path_of(&name)),
    }
}

async fn change(
    shared: &Arc<ServerState>,
    visitor: &Visitor,
    name: &str,
    action_name: &str,
    given: &BTreeMap<String, String>,
) -> Result<Response, Problem> {
    visitor.need(Permission::Operate)?;
    let action = Action::of(action_name);
    let action = action.ok_or_else(|| Problem::not_found("there is nothing at this address"))?;
    let campaign = shared.store.campaign(name).await?;
    let campaign = campaign.ok_or_else(|| unknown_campaign(name))?;
    let done_page = |status: StatusCode, message: &str| {
        let values = context! {
            title => action.label(),
            message,
            back => path_of(name),
            ..visitor_values(visitor, "campaign")
        };
        render(status, "done.html", values)
    };
    // A task of its own: a change of many messages is not cut off when its client is answered or goes away.
    let (who, state) = (visitor.0.name.clone(), Arc::clone(shared));
    let given_now = given.clone();
    let changing = tokio::spawn(until_stopped(shared, async move {
        let changed = action
            .run(&state.patient_store, &campaign, &given_now, &who)
            .await;
        let campaign = &campaign.name;
        match &changed {
            Ok(_) => tracing::info!(who, campaign, action = action.as_str(), "changed"),
            Err(ActionError::Store(error)) => {
                tracing::warn!(who, campaign, action = action.as_str(), %error, "not changed");
            }
            Err(_) => {}
        }
        changed
    }));
    let changed = match tokio::time::timeout(ANSWER_WITHIN, changing).await {
        Ok(Ok(Some(changed))) => changed,
        Ok(Ok(None)) => {
            return Err(Problem::unavailable(
                "the server stops; check what was done",
            ));
        }
        // A panic, which has been logged.
        Ok(Err(_)) => return Err(Problem::unavailable("the change ended unexpectedly")),
        Err(_) => {
            let message =
                "This takes longer, and continues. The page Changes shows when it is done.";
            return Ok(done_page(StatusCode::ACCEPTED, message));
        }
    };
    match changed {
        Ok(done) => Ok(done_page(StatusCode::OK, &done)),
        Err(ActionError::Invalid(problem)) => {
            let problem = Some((StatusCode::BAD_REQUEST, problem.as_str()));
            question(shared, visitor, name, action_name, given, problem).await
        }
        Err(ActionError::Grown(problem)) => {
            let problem = Some((StatusCode::CONFLICT, problem.as_str()));
            question(shared, visitor, name, action_name, given, problem).await
        }
        Err(ActionError::Refused(refused)) => Err(refused.into()),
        Err(ActionError::Store(error)) => Err(error.into()),
    }
}

#[derive(Deserialize)]
struct SearchQuery {
    phone: Option<String>,
}

async fn search(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Query(query): Query<SearchQuery>,
) -> Response {
    let base = visitor_values(&visitor, "search");
    let Some(text) = query.phone else {
        return render(StatusCode::OK, "search.html", base);
    };
    let found = match Phone::parse(&text, None) {
        Ok(phone) => look_up(&shared, &visitor, &phone).await,
        Err(error) => Err(Problem::invalid(format!(
            "not a phone number with its country code: {error}"
        ))),
    };
    match found {
        Ok(found) => {
            let values = context! { phone => text, ..found };
            render(StatusCode::OK, "search.html", context! { ..values, ..base })
        }
        Err(problem) => {
            let values = context! { phone => text, problem => problem.detail, ..base };
            render(problem.status, "search.html", values)
        }
    }
}

/// All messages to a phone.
async fn look_up(shared: &ServerState, visitor: &Visitor, phone: &Phone) -> Result<Value, Problem> {
    let store = &shared.store;
    let filter = SmsFilter::Phone(phone.as_str());
    let found = shared.page.search(store, filter, None, ROWS).await?;
    let ids: Vec<i64> = found.iter().map(|one| one.campaign_id).collect();
    let names = store.campaign_names(&ids).await?;
    let suppressed = store.suppressed_among(&[phone.as_str()]).await?;
    let ids: Vec<i64> = found.iter().map(|one| one.id).collect();
    let failed = store.failed_attempts(&ids).await?;
    let may_operate = visitor.may(Permission::Operate);
    let found: Vec<Value> = found
        .iter()
        .rev()
        .map(|one| {
            let tried = attempts(one, failed.iter().filter(|it| it.sms_id == one.id));
            context! {
                id => one.id.to_string(),
                campaign => names.get(&one.campaign_id),
                state => one.state,
                delivery => one.delivery.as_deref(),
                reason => one.reason.as_deref(),
                class => one.class.as_deref(),
                code => one.code.as_deref(),
                attempts => one.attempts,
                provider => one.provider.as_deref(),
                message_id => one.message_id.as_deref().filter(|_| may_operate),
                at => one.at.to_string(),
                tried => tried.iter().map(attempt_value).collect::<Vec<_>>(),
                may_have_earlier => may_have_earlier(&tried),
            }
        })
        .collect();
    Ok(context! { found, suppressed => !suppressed.is_empty() })
}

fn attempt_value(line: &AttemptLine<'_>) -> Value {
    context! {
        at => line.at.to_string(),
        outcome => line.outcome,
        is_found_accepted => line.is_found_accepted,
        provider => line.provider,
        class => line.class,
        code => line.code,
        reason => line.reason,
    }
}

#[derive(Deserialize)]
struct SuppressionQuery {
    after: Option<String>,
}

async fn suppression(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Query(query): Query<SuppressionQuery>,
) -> Response {
    let after = query.after.as_deref();
    match suppression_page(&shared, &visitor, after, None, None).await {
        Ok(page) => page,
        Err(problem) => problem_page(&visitor, &problem, "/"),
    }
}

async fn suppression_page(
    shared: &ServerState,
    visitor: &Visitor,
    after: Option<&str>,
    problem: Option<&str>,
    message: Option<&str>,
) -> Result<Response, Problem> {
    visitor.need(Permission::Operate)?;
    let entries = shared.store.suppressed(after, ROWS).await?;
    let has_more = i64::try_from(entries.len()).is_ok_and(|count| count == ROWS);
    let last = entries.last().filter(|_| has_more);
    let last = last.map(|one| utf8_percent_encode(&one.phone, NON_ALPHANUMERIC).to_string());
    let entries: Vec<Value> = entries
        .iter()
        .map(|one| {
            let since = Timestamp::from_millis(one.created_at).to_string();
            context! { phone => one.phone.as_str(), reason => one.reason.as_deref(), since }
        })
        .collect();
    let status = match problem {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    let values = context! {
        entries, after => last, problem, message,
        ..visitor_values(visitor, "suppression")
    };
    Ok(render(status, "suppression.html", values))
}

#[derive(Deserialize)]
struct Suppress {
    phone: String,
    #[serde(default)]
    reason: String,
}

async fn suppress(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Form(form): Form<Suppress>,
) -> Response {
    match add_suppressed(&shared, &visitor, &form).await {
        Ok(page) => page,
        Err(problem) => problem_page(&visitor, &problem, "/suppression"),
    }
}

async fn add_suppressed(
    shared: &ServerState,
    visitor: &Visitor,
    form: &Suppress,
) -> Result<Response, Problem> {
    visitor.need(Permission::Operate)?;
    let phone = match Phone::parse(&form.phone, None) {
        Ok(phone) => phone,
        Err(error) => {
            let problem = format!("Not a phone number with its country code: {error}.");
            return suppression_page(shared, visitor, None, Some(&problem), None).await;
        }
    };
    let store = &shared.store;
    let at = store.now().await?;
    let reason = printable_line(form.reason.trim()).into_owned();
    let reason = Some(reason).filter(|reason| !reason.is_empty());
    let reason = reason.or_else(|| Some(format!("added by {}", visitor.0.name)));
    let phones = vec![(phone.as_str().to_owned(), reason)];
    let added = store.suppress(phones, at).await?;
    let detail = mask(phone.as_str());
    store
        .record(&visitor.0.name, "suppress", None, &detail)
        .await?;
    let message = match added {
        0 => format!("{} was on the list already.", phone.as_str()),
        _ => format!("Added {}.", phone.as_str()),
    };
    suppression_page(shared, visitor, None, None, Some(&message)).await
}

async fn audit(State(shared): State<Arc<ServerState>>, visitor: Visitor) -> Response {
    let entries = match shared.store.audit_entries(ROWS).await {
        Ok(entries) => entries,
        Err(error) => return problem_page(&visitor, &error.into(), "/"),
    };
    let entries: Vec<Value> = entries
        .iter()
        .map(|one| {
            context! {
                at => one.at.to_string(),
                who => one.who.as_str(),
                what => one.what.as_str(),
                campaign => one.campaign.as_deref(),
                detail => one.detail.as_str(),
            }
        })
        .collect();
    let values = context! { entries, ..visitor_values(&visitor, "audit") };
    render(StatusCode::OK, "audit.html", values)
}

async fn report_page(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    let written = file(&shared, &visitor.0, &name, Format::Html, Listing::Figures).await;
    let mut response = match written {
        Ok(response) => response,
        Err(problem) => return problem_page(&visitor, &problem, "/"),
    };
    let headers = response.headers_mut();
    let policy = HeaderValue::from_static(REPORT_POLICY);
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html);
    response
}

/// A list of messages as CSV, for pages and for programs.
pub(super) async fn report_csv(
    shared: &Arc<ServerState>,
    who: &Identity,
    name: &str,
    list: &str,
) -> Result<Response, Problem> {
    let listing = match list {
        "failed" => Listing::Failed,
        "undelivered" => Listing::Undelivered,
        "sent" => Listing::Sent,
        "figures" => Listing::Figures,
        other => {
            let other = other.escape_debug();
            return Err(Problem::invalid(format!(
                "unknown list `{other}`: use `failed`, `undelivered`, `sent` or `figures`"
            )));
        }
    };
    let mut response = file(shared, who, name, Format::Csv, listing).await?;
    let headers = response.headers_mut();
    let csv = HeaderValue::from_static("text/csv; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, csv);
    let file = utf8_percent_encode(name, NON_ALPHANUMERIC);
    let attachment = format!("attachment; filename*=UTF-8''{file}-{list}.csv");
    if let Ok(attachment) = HeaderValue::from_str(&attachment) {
        headers.insert(header::CONTENT_DISPOSITION, attachment);
    }
    Ok(response)
}

async fn csv(shared: &Arc<ServerState>, visitor: &Visitor, name: &str, list: &str) -> Response {
    match report_csv(shared, &visitor.0, name, list).await {
        Ok(response) => response,
        Err(problem) => problem_page(visitor, &problem, "/"),
    }
}

async fn failed_csv(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    csv(&shared, &visitor, &name, "failed").await
}

async fn undelivered_csv(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    csv(&shared, &visitor, &name, "undelivered").await
}

async fn sent_csv(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    csv(&shared, &visitor, &name, "sent").await
}

/// The rejected rows of an uploaded list.
async fn rejects_csv(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Response {
    let rows = async {
        visitor.need(Permission::Operate)?;
        rejected_rows(&shared, &visitor.0, &id).await
    };
    match rows.await {
        Ok(mut response) => {
            let attachment = HeaderValue::from_static("attachment; filename=\"rejects.csv\"");
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_DISPOSITION, attachment);
            response
        }
        Err(problem) => problem_page(&visitor, &problem, "/"),
    }
}

/// Writes a report into the body of a response while it is read, with phones and texts if the role may see them. Only
/// some are written at once, because each takes a thread and holds back the database's cleaning.
async fn file(
    shared: &Arc<ServerState>,
    who: &Identity,
    name: &str,
    format: Format,
    listing: Listing,
) -> Result<Response, Problem> {
    let campaign = shared.store.campaign(name).await?;
    let campaign = campaign.ok_or_else(|| unknown_campaign(name))?;
    let turn = shared.page.download_turn()?;
    let is_whole = who.role.may(Permission::Operate);
    if is_whole && (format == Format::Html || listing != Listing::Figures) {
        let what = match listing {
            Listing::Failed => "the failed messages",
            Listing::Undelivered => "the undelivered messages",
            Listing::Sent => "the sent messages",
            Listing::Figures => "the report",
        };
        record_download(shared, who, Some(name), what).await?;
    }
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(4);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let _turn = turn;
        let store = &shared.patient_store;
        let options = ReportOptions {
            mask: !is_whole,
            prices: shared.page.prices().clone(),
            ..ReportOptions::default()
        };
        let mut out = BodyWriter {
            sender: sender.clone(),
            buffer: Vec::new(),
        };
        let written = async {
            let report = Report::gather(store, Some(&campaign), &options).await?;
            report.write(store, format, listing, &mut out).await
        };
        let written = tokio::select! {
            written = written => written,
            // The client went away.
            () = sender.closed() => return,
        };
        if let Err(error) = written {
            tracing::warn!(%error, "a report was not written whole");
            // The body ends with an error, so that it does not look complete.
            let _ = sender.send(Err(io::Error::other("incomplete"))).await;
        }
    });
    let parts = futures_util::stream::unfold(receiver, async |mut receiver| {
        let part = receiver.recv().await?;
        Some((part, receiver))
    });
    Ok(Response::new(Body::from_stream(parts)))
}

/// Records who downloads phones.
pub(super) async fn record_download(
    shared: &ServerState,
    who: &Identity,
    campaign: Option<&str>,
    what: &str,
) -> Result<(), Problem> {
    let detail = match campaign {
        Some(campaign) => format!("downloaded {what} of `{campaign}`"),
        None => format!("downloaded {what}"),
    };
    let recorded = shared
        .store
        .record(&who.name, "download", campaign, &detail);
    Ok(recorded.await?)
}

/// Sends what is written as parts of a body.
struct BodyWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl io::Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const PART: usize = 32 << 10;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PART {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let part = Bytes::from(std::mem::take(&mut self.buffer));
        let sending = tokio::time::timeout(READ_TIMEOUT, self.sender.send(Ok(part)));
        let sent = tokio::task::block_in_place(|| Handle::current().block_on(sending));
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

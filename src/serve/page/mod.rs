//! The pages. They work without JavaScript, on phones, in dark mode and by keyboard. The script of a live page asks for
//! it again and changes what differs.

mod actions;
mod activity;
mod alerts;
mod attempts;
mod campaign;
mod events;
mod overview;
mod snapshot;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum_extra::extract::CookieJar;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use self::actions::{Action, ActionError};
use self::activity::limited_by;
use self::alerts::{alerts, since};
use self::attempts::{AttemptLine, attempts, may_have_earlier};
use self::events::{TimelineEvent, events};
use super::access::AccessError;
use super::downloads::{rejected_rows, report_csv, report_html};
use super::guard::{self, ClientAddress, Form, Path, Query, SameSite, Visitor};
use super::problem::{Problem, unknown_campaign};
use super::tokens::Permission;
use super::{ServerState, until_stopped};
use crate::operations::{self, Actor};
use crate::phone::{Phone, PhoneError};
use crate::report::{self, CampaignSummary, LocalTime};
use crate::sms::Timestamp;
use crate::store::{Campaign, SmsFilter};
use crate::text::{duration, printable_line};

pub(super) use self::snapshot::{Page, Snapshot, refresh};

/// How long a page waits for a change before it says that the change continues; shorter than a request may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Rows of lists on a page.
const ROWS: i64 = 200;
const SCRIPT: &str = include_str!("../../../templates/serve/page.js");
/// Changes what differs between two versions of a page; see the licence in the file.
const MORPH: &str = include_str!("../../../templates/serve/idiomorph.js");
const STYLE: &str = include_str!("../../../templates/serve/serve.css");

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../templates/serve/", $name)))),*]
    };
}

/// All templates. They are checked by a test, so they can be rendered.
static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = report::environment().expect("a test renders the report");
    environment.add_filter("middle", |name: &str| shortened(name));
    for (name, source) in templates![
        "layout.html",
        "login.html",
        "overview.html",
        "alerts.html",
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

/// The pages have attributes `style` with numbers that this program has computed.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; style-src-attr 'unsafe-inline'; \
     script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'";

pub(super) fn routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/", get(overview::overview))
        .route("/style.css", get(style))
        .route("/page.js", get(async || javascript(SCRIPT)))
        .route("/idiomorph.js", get(async || javascript(MORPH)))
        .route("/robots.txt", get(robots))
        .route("/login", get(overview::overview).post(log_in))
        .route("/logout", post(log_out))
        .route("/search", get(search))
        .route("/suppression", get(suppression).post(suppress))
        .route("/audit", get(audit))
        .route("/campaigns/{name}", get(campaign::campaign))
        .route("/campaigns/{name}/report.html", get(report_page))
        .route("/campaigns/{name}/failed.csv", get(failed_csv))
        .route("/campaigns/{name}/undelivered.csv", get(undelivered_csv))
        .route("/campaigns/{name}/sent.csv", get(sent_csv))
        .route("/campaigns/{name}/{action}", get(ask).post(act))
        .route("/imports/{id}/rejects.csv", get(rejects_csv))
        .method_not_allowed_fallback(guard::method_not_allowed)
        .layer(from_fn(show_problems))
}

/// Shows problems as pages: the log-in to who is not logged in.
async fn show_problems(request: Request, next: Next) -> Response {
    let wants_html = wants_html(request.headers());
    let response = next.run(request).await;
    match response.extensions().get::<Problem>() {
        Some(problem) if problem.status == StatusCode::UNAUTHORIZED => log_in_page(None),
        Some(problem) if wants_html => problem_response(problem, &response),
        _ => response,
    }
}

/// Whether it is a browser that asks.
fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT);
    let accepted = accepted.and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

fn problem_response(problem: &Problem, response: &Response) -> Response {
    let mut page = problem_page(None, problem, "/");
    for name in [header::RETRY_AFTER, header::ALLOW] {
        if let Some(value) = response.headers().get(&name) {
            page.headers_mut().insert(name, value.clone());
        }
    }
    page
}

/// There is no such address.
pub(super) async fn not_found(visitor: Result<Visitor, Problem>, headers: HeaderMap) -> Response {
    let problem = Problem::not_found("there is nothing at this address");
    if wants_html(&headers) {
        problem_page(visitor.ok().as_ref(), &problem, "/")
    } else {
        problem.into_response()
    }
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

fn javascript(script: &str) -> Response {
    asset("text/javascript; charset=utf-8", script.to_owned())
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

fn log_in_page(problem: Option<&str>) -> Response {
    render(StatusCode::UNAUTHORIZED, "login.html", context! { problem })
}

/// A problem as a page.
fn problem_page<'v>(
    visitor: impl Into<Option<&'v Visitor>>,
    problem: &Problem,
    back: &str,
) -> Response {
    let visitor = visitor.into();
    let visitor = visitor.map(|visitor| visitor_values(visitor, ""));
    let values = context! {
        title => problem.status.canonical_reason(),
        message => sentence(&problem.detail),
        back,
        back_label => if back == "/" { "All campaigns" } else { "Back" },
        ..visitor.unwrap_or_else(|| context! {})
    };
    render(problem.status, "done.html", values)
}

/// An error as a sentence.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase);
    let sentence: String = first.into_iter().flatten().chain(characters).collect();
    if sentence.ends_with(['.', '!', '?']) {
        sentence
    } else {
        sentence + "."
    }
}

fn visitor_values(visitor: &Visitor, section: &str) -> Value {
    context! {
        who => visitor.0.name.as_str(),
        role => visitor.0.role.as_str(),
        may_operate => visitor.0.may(Permission::Operate),
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
    cookies: CookieJar,
    Form(form): Form<LogIn>,
) -> Response {
    match shared.access.log_in(&form.token, address, Instant::now()) {
        Ok((who, cookie)) => {
            tracing::info!(who = who.name, "logged in");
            (cookies.add(cookie), Redirect::to("/")).into_response()
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
    cookies: CookieJar,
) -> impl IntoResponse {
    (shared.access.log_out(cookies), Redirect::to("/"))
}

/// The address of a campaign's page.
fn path_of(name: &str) -> String {
    format!("/campaigns/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

#[derive(Deserialize)]
struct Live {
    live: Option<u64>,
}

/// Cuts a long name in the middle, where names of a series are alike.
fn shortened(name: &str) -> String {
    const HEAD: usize = 24;
    const TAIL: usize = 15;
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= HEAD + TAIL + 1 {
        return name.to_owned();
    }
    let head = characters[..HEAD].iter();
    let tail = characters[characters.len() - TAIL..].iter();
    head.chain(&['…']).chain(tail).collect()
}

fn ago(age: Duration) -> String {
    match age.as_secs() {
        0..3 => "now".to_owned(),
        seconds => format!("{} ago", duration(Duration::from_secs(seconds))),
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
fn unchanged(live: Option<u64>, snapshot: &Snapshot) -> Option<Response> {
    let is_same = snapshot.revision > 0 && live == Some(snapshot.revision);
    is_same.then(|| StatusCode::NO_CONTENT.into_response())
}

/// What is sent now, as short phrases. `rate`: messages per second; `due`: messages that could be sent.
fn now_facts(snapshot: &Snapshot, rate: Option<f64>, limit: Option<&str>, due: u64) -> Vec<String> {
    let limit = limit.map_or_else(String::new, |limit| format!(", at most {limit}"));
    let mut facts = Vec::new();
    match rate {
        Some(rate) => {
            facts.push(format!("{} now{limit}", report::rate(rate)));
            let reason = limited_by(snapshot).filter(|_| due > 0);
            facts.extend(reason.map(|reason| format!("limited by {reason}")));
            facts.extend(eta(due, rate).map(|eta| format!("done in about {eta}")));
        }
        None if due > 0 => facts.push(format!("0/s now{limit}")),
        None => {}
    }
    facts
}

/// What is wrong, for a template.
fn alert_values(
    shared: &ServerState,
    snapshot: &Snapshot,
    campaign: Option<&CampaignSummary>,
) -> Vec<Value> {
    let local = LocalTime::system();
    let found = alerts(snapshot, campaign, shared.default_provider.as_deref());
    let found = found.into_iter();
    found
        .map(|alert| {
            let at = alert.since;
            let since = at.map(|at| since(at, snapshot.now(), &local));
            context! { text => alert.text, since }
        })
        .collect()
}

/// The chart of the last hour, with its events.
fn last_hour(snapshot: &Snapshot, campaign: Option<&Campaign>) -> Option<Value> {
    let timeline = snapshot.timeline(campaign.map(|one| one.id))?;
    let local = LocalTime::system();
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
    visitor.0.need(Permission::Operate)?;
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
    visitor.0.need(Permission::Operate)?;
    let action = Action::of(action_name);
    let action = action.ok_or_else(|| Problem::not_found("there is nothing at this address"))?;
    let campaign = shared.store.campaign(name).await?;
    let campaign = campaign.ok_or_else(|| unknown_campaign(name))?;
    let done_page = |status: StatusCode, message: &str| {
        let values = context! {
            title => action.label(),
            message,
            back => path_of(name),
            back_label => "Back to the campaign",
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
            Ok(_) => {
                tracing::info!(who, campaign, action = action.as_str(), "changed");
                state.page.show_change(&state.store, campaign).await;
            }
            Err(ActionError::Operation(error)) => {
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
                "This takes longer, and continues. The page Audit log shows when it is done.";
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
        Err(ActionError::Operation(error)) => Err(error.into()),
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
    let example = phone_example(&shared);
    let base = context! { example, ..visitor_values(&visitor, "search") };
    let Some(text) = query.phone else {
        return render(StatusCode::OK, "search.html", base);
    };
    let found = match Phone::parse(&text, shared.default_region) {
        Ok(phone) => look_up(&shared, &visitor, &phone).await,
        Err(error) => Err(Problem::invalid(phone_problem(&error))),
    };
    match found {
        Ok(found) => {
            let values = context! { phone => text, ..found };
            render(StatusCode::OK, "search.html", context! { ..values, ..base })
        }
        Err(problem) => {
            let values = context! { phone => text, problem => sentence(&problem.detail), ..base };
            render(problem.status, "search.html", values)
        }
    }
}

/// What to enter as a phone.
fn phone_example(shared: &ServerState) -> String {
    match shared.default_region {
        Some(region) => format!("+447400123456, or a number of {region}"),
        None => "+447400123456".to_owned(),
    }
}

fn phone_problem(error: &PhoneError) -> String {
    sentence(&error.plain())
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
    let may_operate = visitor.0.may(Permission::Operate);
    let local = LocalTime::system();
    let found: Vec<Value> = found
        .iter()
        .rev()
        .map(|one| {
            let tried = attempts(
                one,
                failed.iter().filter(|attempt| attempt.sms_id == one.id),
            );
            context! {
                id => one.id.to_string(),
                content => one.content.as_deref().filter(|_| may_operate),
                campaign => names.get(&one.campaign_id),
                path => names.get(&one.campaign_id).map(|name| path_of(name)),
                state => one.state,
                delivery => one.delivery.as_deref(),
                reason => one.reason.as_deref(),
                class => one.class.as_deref(),
                code => one.code.as_deref(),
                attempts => one.attempts,
                provider => one.provider.as_deref(),
                message_id => one.message_id.as_deref().filter(|_| may_operate),
                at => local.short(one.at),
                tried => tried.iter().map(|line| attempt_value(line, &local)).collect::<Vec<_>>(),
                may_have_earlier => may_have_earlier(&tried),
            }
        })
        .collect();
    Ok(context! { found, suppressed => !suppressed.is_empty() })
}

fn attempt_value(line: &AttemptLine<'_>, local: &LocalTime) -> Value {
    context! {
        at => local.seconds(line.at),
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
    match suppression_page(&shared, &visitor, after, context! {}).await {
        Ok(page) => page,
        Err(problem) => problem_page(&visitor, &problem, "/"),
    }
}

async fn suppression_page(
    shared: &ServerState,
    visitor: &Visitor,
    after: Option<&str>,
    added: Value,
) -> Result<Response, Problem> {
    visitor.0.need(Permission::Operate)?;
    let local = LocalTime::system();
    let entries = shared.store.suppressed(after, ROWS).await?;
    let has_more = i64::try_from(entries.len()).is_ok_and(|count| count == ROWS);
    let last = entries.last().filter(|_| has_more);
    let last = last.map(|one| utf8_percent_encode(&one.phone, NON_ALPHANUMERIC).to_string());
    let entries: Vec<Value> = entries
        .iter()
        .map(|one| {
            let since = local.short(Timestamp::from_millis(one.created_at));
            context! { phone => one.phone.as_str(), reason => one.reason.as_deref(), since }
        })
        .collect();
    let is_invalid = added
        .get_attr("problem")
        .is_ok_and(|problem| !problem.is_undefined());
    let status = if is_invalid {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    let example = phone_example(shared);
    let values = context! { entries, example, after => last, ..added };
    let values = context! { ..values, ..visitor_values(visitor, "suppression") };
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
    visitor.0.need(Permission::Operate)?;
    let phone = match Phone::parse(&form.phone, shared.default_region) {
        Ok(phone) => phone,
        Err(error) => {
            let problem = phone_problem(&error);
            let (phone, reason) = (form.phone.as_str(), form.reason.as_str());
            let entered = context! { problem, phone, reason };
            return suppression_page(shared, visitor, None, entered).await;
        }
    };
    let who = &visitor.0.name;
    let reason = match printable_line(form.reason.trim()) {
        reason if reason.is_empty() => format!("added by {who}"),
        reason => reason.into_owned(),
    };
    let actor = Actor::of_token(who);
    let is_new = operations::suppress(&shared.store, &phone, &reason, &actor).await?;
    let phone = phone.as_str();
    let message = if is_new {
        format!("Added {phone}.")
    } else {
        format!("{phone} was on the list already.")
    };
    suppression_page(shared, visitor, None, context! { message }).await
}

async fn audit(State(shared): State<Arc<ServerState>>, visitor: Visitor) -> Response {
    let entries = match shared.store.audit_entries(ROWS).await {
        Ok(entries) => entries,
        Err(error) => return problem_page(&visitor, &error.into(), "/"),
    };
    let local = LocalTime::system();
    let entries: Vec<Value> = entries
        .iter()
        .map(|one| {
            context! {
                at => local.seconds(one.at),
                path => one.campaign.as_deref().map(path_of),
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
    report_html(&shared, &visitor.0, &name)
        .await
        .unwrap_or_else(|problem| problem_page(&visitor, &problem, "/"))
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
        visitor.0.need(Permission::Operate)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_is_cut_in_the_middle() {
        assert_eq!(shortened("spring sale"), "spring sale");
        let name = "customers of the northern branches, spring sale, part 7";
        let short = shortened(name);
        assert_eq!(short, "customers of the norther…ng sale, part 7");
        assert_eq!(short.chars().count(), 40);
        assert_eq!(shortened(&short), short);
    }

    #[test]
    fn error_is_shown_as_a_sentence() {
        assert_eq!(sentence("unknown campaign `c`"), "Unknown campaign `c`.");
        assert_eq!(sentence("`c` is cancelled."), "`c` is cancelled.");
    }
}

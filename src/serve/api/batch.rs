//! Posts many messages: a line for each, or a JSON list.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http::{HeaderMap, StatusCode, header};
use serde::Serialize;
use serde_json::value::RawValue;
use smsq_lifecycle::approval::ListFacts;
use smsq_message::sms::{NewSms, Timestamp};
use smsq_operations::{ListGate, ListPrices, add_message};
use smsq_store::{Campaign, Mode, PostResult, StoreError};
use utoipa::ToSchema;

use crate::body::{PART_TIMEOUT, StreamedBody};
use crate::guard::Program;
use crate::intake::{MAX_MESSAGE, NewMessages, PostedMessage};
use crate::problem::{Fails, Problem, ProblemBody};
use crate::state::ServerState;
use crate::tokens::Permission;

/// The lines of a batch that are committed together.
const CHUNK: usize = 1_000;
/// After this many bytes of lines, fewer are committed together.
const CHUNK_BYTES: usize = 4 << 20;
/// The most messages of a batch that is a JSON array, and its bytes; the most ids and reasons in a response.
const MAX_ARRAY: usize = 1_000;
const MAX_LIST: usize = 16 << 20;
const MAX_LISTED: usize = 10_000;

/// Collects the messages of a batch, commits them in chunks, and counts what became of them.
struct BatchReader<'a> {
    shared: &'a ServerState,
    /// The name of the token.
    posted_by: &'a str,
    line: u64,
    /// Lines and messages that are not committed yet, by campaign and schedule.
    pending: Vec<NewMessages>,
    pending_lines: Vec<Vec<u64>>,
    places: HashMap<(i64, Option<Timestamp>, Option<Timestamp>), usize>,
    count: usize,
    /// Of the lines that are not committed yet.
    bytes: usize,
    result: BatchResult,
    /// The line and the id of each message, while they are few.
    ids: Vec<(u64, Option<i64>)>,
    gate: BatchGate,
    /// Of the campaigns that have messages.
    prices: HashMap<i64, ListPrices<'a>>,
}

/// A batch is a list: its messages wait until it is whole, where rules for approvals need that.
struct BatchGate {
    shared: Arc<ServerState>,
    gate: ListGate,
    /// What the batch has of each campaign.
    facts: BTreeMap<i64, ListFacts>,
}

impl BatchGate {
    async fn new(shared: &Arc<ServerState>, posted_by: &str) -> Result<Self, Problem> {
        let rules = &shared.lists.approval;
        Ok(Self {
            shared: Arc::clone(shared),
            gate: ListGate::of_batch(&shared.store, rules, posted_by).await?,
            facts: BTreeMap::new(),
        })
    }

    fn add(&mut self, campaign_id: i64, prices: &ListPrices<'_>, sms: &NewSms) {
        let facts = self.facts.entry(campaign_id).or_default();
        add_message(facts, prices, &sms.phone, sms.segments);
    }

    /// Decides what has to be approved. Returns why, by campaign.
    async fn decide(&mut self) -> Result<BTreeMap<i64, String>, StoreError> {
        let mut waits = BTreeMap::new();
        while let Some((campaign_id, facts)) = self.facts.first_key_value() {
            let (campaign_id, store) = (*campaign_id, &self.shared.store);
            let reason = self.gate.decide(store, campaign_id, facts).await?;
            waits.extend(reason.map(|reason| (campaign_id, reason)));
            self.facts.remove(&campaign_id);
        }
        Ok(waits)
    }
}

/// The client has disconnected: what was committed before is decided all the same.
impl Drop for BatchGate {
    fn drop(&mut self) {
        if self.facts.is_empty() {
            return;
        }
        let mut rest = Self {
            shared: Arc::clone(&self.shared),
            gate: self.gate.clone(),
            facts: std::mem::take(&mut self.facts),
        };
        tokio::spawn(async move {
            if let Err(error) = rest.decide().await {
                tracing::warn!(%error, "a batch waits for approval, because it could not be decided");
                rest.facts.clear();
            }
        });
    }
}

#[derive(Serialize, ToSchema)]
struct BatchResult {
    /// Whether no phone gets any message of this database
    #[schema(value_type = bool)]
    practice: Mode,
    /// Lines that are not empty
    lines: u64,
    accepted: u64,
    /// Lines with a `dedupe_key` that the campaign has; nothing was queued for them
    duplicates: u64,
    suppressed: u64,
    rejected_count: u64,
    /// The first 10,000
    #[schema(inline)]
    rejected: Vec<RejectedLine>,
    /// The id of the message of each line, that of line 1 first; null for an empty line and for one that was not
    /// queued; null for more than 10,000
    #[schema(required)]
    ids: Option<Vec<Option<String>>>,
    /// Why messages wait for the approval of another person, by campaign
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    waits_for_approval: BTreeMap<String, String>,
}

#[derive(Serialize, ToSchema)]
struct RejectedLine {
    line: u64,
    reason: String,
}

/// What was stored before a problem stopped the batch.
#[derive(Serialize)]
struct StoppedBatch {
    #[serde(flatten)]
    result: BatchResult,
    #[serde(flatten)]
    problem: ProblemBody,
}

impl<'a> BatchReader<'a> {
    fn new(shared: &'a ServerState, posted_by: &'a str, gate: BatchGate) -> Self {
        Self {
            shared,
            posted_by,
            line: 0,
            pending: Vec::new(),
            pending_lines: Vec::new(),
            places: HashMap::new(),
            count: 0,
            bytes: 0,
            result: BatchResult {
                practice: shared.store.mode(),
                lines: 0,
                accepted: 0,
                duplicates: 0,
                suppressed: 0,
                rejected_count: 0,
                rejected: Vec::new(),
                ids: None,
                waits_for_approval: BTreeMap::new(),
            },
            ids: Vec::new(),
            gate,
            prices: HashMap::new(),
        }
    }

    fn reject(&mut self, line: u64, reason: String) {
        self.result.rejected_count += 1;
        if self.result.rejected.len() < MAX_LISTED {
            self.result.rejected.push(RejectedLine { line, reason });
        }
        self.record_id(line, None);
    }

    fn record_id(&mut self, line: u64, id: Option<i64>) {
        // One more than is listed, so that it is known that there are more.
        if self.ids.len() <= MAX_LISTED {
            self.ids.push((line, id));
        }
    }

    /// Adds a line. Fails where the whole batch must stop; what was committed before stays.
    async fn add(&mut self, json: &[u8]) -> Result<(), Problem> {
        self.line += 1;
        let json = json.trim_ascii();
        if json.is_empty() {
            self.record_id(self.line, None);
            return Ok(());
        }
        self.result.lines += 1;
        let line = self.line;
        let (campaign, message) = match self.shared.intake.read(json).await {
            Ok(read) => read,
            Err(problem)
                if [StatusCode::BAD_REQUEST, StatusCode::CONFLICT].contains(&problem.status) =>
            {
                self.reject(line, problem.detail);
                return Ok(());
            }
            Err(problem) => return Err(problem),
        };
        let key = (campaign.id, message.due_at, message.expires_at);
        let lists = &self.shared.lists;
        let prices = self.prices.entry(campaign.id);
        let prices = prices.or_insert_with(|| ListPrices::of_campaign(lists, &campaign));
        self.gate.add(campaign.id, prices, &message.sms);
        let approval = self.gate.gate.approval.clone();
        let index = *self.places.entry(key).or_insert_with(|| {
            self.pending.push(NewMessages {
                campaign,
                posted_by: self.posted_by.to_owned(),
                due_at: message.due_at,
                expires_at: message.expires_at,
                approval,
                messages: Vec::new(),
            });
            self.pending_lines.push(Vec::new());
            self.pending.len() - 1
        });
        let keys = message.keys(key.0, None);
        self.pending[index].messages.push((message, keys));
        self.pending_lines[index].push(line);
        self.count += 1;
        self.bytes += json.len();
        if self.count >= CHUNK || self.bytes >= CHUNK_BYTES {
            self.commit().await?;
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), Problem> {
        (self.count, self.bytes) = (0, 0);
        self.places.clear();
        let pending = std::mem::take(&mut self.pending);
        let lines = std::mem::take(&mut self.pending_lines);
        let intake = &self.shared.intake;
        let commits = pending.into_iter().map(async |new| {
            let campaign = Arc::clone(&new.campaign);
            (campaign, intake.commit(new).await)
        });
        let committed = join_all(commits).await;
        let mut failed = None;
        for ((campaign, committed), lines) in committed.into_iter().zip(lines) {
            match committed {
                Ok(results) => {
                    for (line, result) in lines.into_iter().zip(results) {
                        self.count_result(line, &campaign, result);
                    }
                }
                Err(problem) => failed = Some(problem),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn count_result(&mut self, line: u64, campaign: &Campaign, result: PostResult) {
        let (count, id) = match result {
            PostResult::Queued(id) => (&mut self.result.accepted, Some(id)),
            PostResult::Repeated(id) => (&mut self.result.duplicates, Some(id)),
            PostResult::Known => (&mut self.result.duplicates, None),
            PostResult::Suppressed => (&mut self.result.suppressed, None),
            PostResult::Conflict
            | PostResult::Dead
            | PostResult::Expired
            | PostResult::Cancelled
            | PostResult::NoCampaign => {
                let problem = self.shared.intake.refusal(&campaign.name, result);
                return self.reject(line, problem.detail);
            }
        };
        *count += 1;
        self.record_id(line, id);
    }

    /// Decides what has to be approved, by the names of campaigns.
    async fn decide(&mut self) -> Result<BTreeMap<String, String>, Problem> {
        let waits = self.gate.decide().await?;
        let ids: Vec<i64> = waits.keys().copied().collect();
        let names = self.shared.store.campaign_names(&ids).await?;
        let reasons = waits.into_iter();
        Ok(reasons.filter_map(|(id, reason)| Some((names.get(&id)?.clone(), reason))).collect())
    }

    /// The answer after the last line, or after a problem that stopped the batch.
    async fn finish(mut self, read: Result<(), Problem>) -> Response {
        // What was read before a problem is still stored, and counted.
        let mut committed = self.commit().await;
        match self.decide().await {
            Ok(waits) => self.result.waits_for_approval = waits,
            Err(problem) => committed = committed.and(Err(problem)),
        }
        let mut result = self.result;
        result.rejected.sort_by_key(|rejected| rejected.line);
        self.ids.sort_by_key(|(line, _)| *line);
        let ids = self.ids.iter().map(|(_, id)| id.map(|id| id.to_string()));
        result.ids = (ids.len() <= MAX_LISTED).then(|| ids.collect());
        match read.and(committed) {
            Ok(()) => Json(result).into_response(),
            Err(problem) if result.accepted + result.duplicates == 0 => problem.into_response(),
            Err(mut problem) => {
                problem.detail += "; the messages with an id were stored before";
                let stopped = Json(StoppedBatch { result, problem: problem.body() });
                let body = stopped.into_response().into_body();
                problem.into_response().map(|_| body)
            }
        }
    }
}

/// Queue many messages
///
/// Role `send`. A message in each line, any number of lines; they are committed 1,000 at a time while they are read. Or
/// a JSON list of up to 1,000 messages. A line that cannot be used does not stop the others. Where the whole batch stops
/// (429, 503), the answer also has the counts and ids of what was stored before: give each message a `dedupe_key`, and
/// post the batch again.
#[utoipa::path(
    post,
    path = "/v1/messages/batch",
    operation_id = "postBatch",
    tag = "messages",
    security(("token" = ["send", "admin"])),
    request_body(content(
        (String = "application/x-ndjson", example = "{\"phone\":\"+447400123456\",\"text\":\"One\"}\n\
            {\"phone\":\"+447400123457\",\"text\":\"Two\"}\n"),
        (Vec<PostedMessage> = "application/json")
    )),
    responses(
        (status = 200, description = "What became of the lines", body = BatchResult),
        Fails::<400>, Fails::<401>, Fails::<403>, Fails::<408>, Fails::<413>, Fails::<415>, Fails::<429>, Fails::<503>
    ),
    extensions(("x-limits" = json!(format!(
        "lines of {} KiB, or a list of {MAX_ARRAY} messages and {} MiB; {} s for each part",
        MAX_MESSAGE >> 10, MAX_LIST >> 20, PART_TIMEOUT.as_secs()
    ))))
)]
pub(super) async fn post_batch(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    headers: HeaderMap,
    body: StreamedBody,
) -> Result<Response, Problem> {
    program.0.need(Permission::Send)?;
    if headers.contains_key("idempotency-key") {
        return Err(Problem::invalid(
            "a batch cannot have an `Idempotency-Key`: give each message a `dedupe_key`",
        ));
    }
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default()
        .trim();
    let gate = BatchGate::new(&shared, &program.0.name).await?;
    let mut reader = BatchReader::new(&shared, &program.0.name, gate);
    let read = match kind {
        "application/x-ndjson" | "application/jsonl" | "application/ndjson" => {
            read_lines(body, &mut reader).await
        }
        "application/json" => read_array(body, &mut reader).await,
        _ => {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "use `Content-Type: application/x-ndjson` with a message in each line, or \
                 `application/json` with a list of up to 1,000 messages",
            ));
        }
    };
    Ok(reader.finish(read).await)
}

async fn read_lines(body: StreamedBody, reader: &mut BatchReader<'_>) -> Result<(), Problem> {
    let mut lines = body.lines(MAX_MESSAGE);
    while let Some(line) = lines.next().await? {
        reader.add(&line).await?;
    }
    Ok(())
}

async fn read_array(body: StreamedBody, reader: &mut BatchReader<'_>) -> Result<(), Problem> {
    let too_large = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "a list may have up to 1,000 messages: send more as `application/x-ndjson`",
        )
    };
    let text = body.whole(MAX_LIST).await?.ok_or_else(too_large)?;
    let messages = array(&text).map_err(Problem::invalid)?;
    if messages.len() > MAX_ARRAY {
        return Err(too_large());
    }
    for message in messages {
        reader.add(message.get().as_bytes()).await?;
    }
    Ok(())
}

/// The messages of a JSON array, each as it was written.
fn array(json: &[u8]) -> Result<Vec<&RawValue>, String> {
    serde_json::from_slice(json).map_err(|error| {
        if error.is_data() {
            "invalid list of messages: it is not a JSON array".to_owned()
        } else {
            let (line, column) = (error.line(), error.column());
            format!("invalid list of messages: it is not JSON (line {line}, column {column})")
        }
    })
}

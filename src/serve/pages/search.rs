//! Looks up all messages to one phone, with their attempts.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use smsq_message::phone::{Phone, PhoneError};
use smsq_store::{FailedAttempt, FoundSms, SmsFilter};

use super::ROWS;
use super::attempts::{AttemptLine, attempts, may_have_earlier};
use super::render::{View, render, sentence};
use crate::guard::{Query, Visitor};
use crate::problem::Problem;
use crate::state::ServerState;

#[derive(Deserialize)]
pub(super) struct SearchQuery {
    phone: Option<String>,
}

#[derive(Default, Serialize)]
pub(super) struct SearchPage<'a> {
    phone: &'a str,
    example: String,
    problem: Option<String>,
    /// `None`: nothing was looked for.
    found: Option<Vec<FoundRow<'a>>>,
    suppressed: bool,
}

/// A message that was found.
#[derive(Serialize)]
struct FoundRow<'a> {
    #[serde(flatten)]
    sms: &'a FoundSms,
    content: Option<&'a str>,
    campaign: Option<&'a str>,
    /// Its attempts, the oldest first.
    tried: Vec<AttemptLine<'a>>,
    may_have_earlier: bool,
}

impl View for SearchPage<'_> {
    const TEMPLATE: &'static str = "search.html";
    const SECTION: &'static str = "search";
}

pub(super) async fn search(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Query(query): Query<SearchQuery>,
) -> Response {
    let mut page = SearchPage {
        phone: query.phone.as_deref().unwrap_or_default(),
        example: phone_example(&shared),
        ..SearchPage::default()
    };
    if query.phone.is_none() {
        return render(StatusCode::OK, &visitor, &page);
    }
    let found = match Phone::parse(page.phone, shared.default_region) {
        Ok(phone) => Messages::find(&shared, &phone).await,
        Err(error) => Err(Problem::invalid(phone_problem(&error))),
    };
    match &found {
        Ok(messages) => {
            page.found = Some(messages.rows());
            page.suppressed = messages.is_suppressed;
            render(StatusCode::OK, &visitor, &page)
        }
        Err(problem) => {
            page.problem = Some(sentence(&problem.detail));
            render(problem.status, &visitor, &page)
        }
    }
}

/// What to enter as a phone.
pub(super) fn phone_example(shared: &ServerState) -> String {
    match shared.default_region {
        Some(region) => format!("+447400123456, or a number of {region}"),
        None => "+447400123456".to_owned(),
    }
}

pub(super) fn phone_problem(error: &PhoneError) -> String {
    sentence(&error.plain())
}

/// All messages to a phone.
struct Messages {
    found: Vec<FoundSms>,
    names: BTreeMap<i64, String>,
    failed: Vec<FailedAttempt>,
    is_suppressed: bool,
}

impl Messages {
    async fn find(shared: &ServerState, phone: &Phone) -> Result<Self, Problem> {
        let store = &shared.store;
        let found = shared.search(SmsFilter::Phone(phone.as_str()), None, ROWS).await?;
        let campaigns: Vec<i64> = found.iter().map(|sms| sms.campaign_id).collect();
        let ids: Vec<i64> = found.iter().map(|sms| sms.id).collect();
        Ok(Self {
            names: store.campaign_names(&campaigns).await?,
            is_suppressed: !store.suppression().among(&[phone.as_str()]).await?.is_empty(),
            failed: store.failed_attempts(&ids).await?,
            found,
        })
    }

    /// The oldest first.
    fn rows<'a>(&'a self) -> Vec<FoundRow<'a>> {
        let row = |sms: &'a FoundSms| {
            let of_message = |attempt: &&FailedAttempt| attempt.sms_id == sms.id;
            let tried = attempts(sms, self.failed.iter().filter(of_message));
            FoundRow {
                sms,
                content: sms.content.as_deref(),
                campaign: self.names.get(&sms.campaign_id).map(String::as_str),
                may_have_earlier: may_have_earlier(&tried),
                tried,
            }
        };
        self.found.iter().rev().map(row).collect()
    }
}

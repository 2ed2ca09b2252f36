//! What recipients sent back.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use smsq_message::phone::mask;
use smsq_store::KeptReply;

use super::ROWS;
use super::render::{View, problem_page, render};
use crate::guard::{Query, Visitor};
use crate::problem::Problem;
use crate::state::ServerState;
use crate::tokens::Permission;

#[derive(Deserialize)]
pub(super) struct RepliesQuery {
    before: Option<i64>,
}

#[derive(Default, Serialize)]
pub(super) struct RepliesPage {
    replies: Vec<ShownReply>,
    /// The id of the last reply, if there are more.
    before: Option<i64>,
}

/// A reply; with its phone and text only for who may see them.
#[derive(Serialize)]
struct ShownReply {
    phone: String,
    text: Option<String>,
    to: Option<String>,
    provider: String,
    campaign: Option<String>,
    received_at: i64,
}

impl View for RepliesPage {
    const TEMPLATE: &'static str = "replies.html";
    const SECTION: &'static str = "replies";
}

fn shown(reply: KeptReply, names: &BTreeMap<i64, String>, may_see: bool) -> ShownReply {
    let campaign = reply.campaign_id.and_then(|id| names.get(&id).cloned());
    ShownReply {
        phone: if may_see { reply.phone } else { mask(&reply.phone) },
        text: may_see.then_some(reply.content),
        to: reply.sender,
        provider: reply.provider,
        campaign,
        received_at: reply.received_at.as_millis(),
    }
}

pub(super) async fn replies(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Query(query): Query<RepliesQuery>,
) -> Response {
    match page(&shared, &visitor, query.before).await {
        Ok(page) => render(StatusCode::OK, &visitor, &page),
        Err(problem) => problem_page(&visitor, &problem, "/"),
    }
}

async fn page(
    shared: &ServerState,
    visitor: &Visitor,
    before: Option<i64>,
) -> Result<RepliesPage, Problem> {
    let may_see = visitor.identity.may(Permission::Operate);
    let kept = shared.store.replies().page(before, ROWS).await?;
    let has_more = i64::try_from(kept.len()).is_ok_and(|count| count == ROWS);
    let campaigns: Vec<i64> = kept.iter().filter_map(|reply| reply.campaign_id).collect();
    let names = shared.store.campaign_names(&campaigns).await?;
    Ok(RepliesPage {
        before: kept.last().filter(|_| has_more).map(|reply| reply.id),
        replies: kept.into_iter().map(|reply| shown(reply, &names, may_see)).collect(),
    })
}

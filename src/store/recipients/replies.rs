//! Replies: messages that recipients sent, as providers posted them.

use diesel::delete;
use serde::Serialize;
use smsq_message::event::{EventKind, ReplyFacts, body};
use smsq_message::sms::Timestamp;
use smsq_process::boxed;

use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, transaction};
use crate::error::StoreError;
use crate::events::outbox;
use crate::tables::column_types::LossyText;
use crate::tables::schema::{campaign, reply, sms_key};
use crate::{CHUNK, ReplyStore, positive};
use outbox::NewEvent;

/// A reply that a provider posted.
#[derive(Clone, PartialEq, Eq)]
pub struct NewReply {
    /// E.164 with `+`, or as the provider writes it.
    pub phone: String,
    /// The number that it was sent to.
    pub sender: Option<String>,
    pub content: String,
    /// What tells the replies of a provider apart: one that is posted again has the same.
    pub key: String,
    pub is_stop: bool,
}

/// A reply that is stored.
#[derive(Clone, PartialEq, Eq, Queryable, Selectable, Serialize)]
#[diesel(table_name = reply)]
pub struct KeptReply {
    pub id: i64,
    pub provider: String,
    pub phone: String,
    pub sender: Option<String>,
    pub content: String,
    pub campaign_id: Option<i64>,
    pub received_at: Timestamp,
}

impl ReplyStore<'_> {
    /// Stores replies with their events. Those that are stored already change nothing. Returns how many were new.
    #[boxed]
    pub async fn add(
        &self,
        provider: &str,
        replies: &[NewReply],
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut added = 0;
        for new in replies {
            added += transaction!(self, |connection| async {
                let campaign = campaign_of(connection, &new.phone).await?;
                let row = [(
                    reply::provider.eq(provider),
                    reply::reply_key.eq(&new.key),
                    reply::phone.eq(&new.phone),
                    reply::sender.eq(&new.sender),
                    reply::content.eq(&new.content),
                    reply::campaign_id.eq(campaign.as_ref().map(|(id, _)| *id)),
                    reply::received_at.eq(now),
                )];
                if NewRows::of(reply::table, &row).insert_new(connection).await? == 0 {
                    return QueryResult::Ok(0);
                }
                let id: i64 = reply::table
                    .filter(reply::provider.eq(provider))
                    .filter(reply::reply_key.eq(&new.key))
                    .select(reply::id)
                    .first(connection)
                    .await?;
                let kind = EventKind::ReplyReceived;
                let events: Vec<NewEvent> = self
                    .subscriptions()
                    .of(kind)
                    .map(|subscription| {
                        let facts = ReplyFacts {
                            reply: id.to_string(),
                            provider,
                            campaign: campaign.as_ref().map(|(_, name)| name.text.as_str()),
                            to: new.sender.as_deref(),
                            is_stop: new.is_stop,
                            phone: subscription.parts.phones.then_some(&*new.phone),
                            text: subscription.parts.texts.then_some(&*new.content),
                        };
                        let is_personal = subscription.parts.phones || subscription.parts.texts;
                        NewEvent {
                            hook: subscription.hook.clone(),
                            kind,
                            body: body(kind.as_str(), now, &facts),
                            phone: is_personal.then(|| new.phone.clone()),
                        }
                    })
                    .collect();
                outbox::insert(connection, &events, now).await?;
                Ok(1)
            })?;
        }
        Ok(added)
    }

    /// The replies before the one with this id, the newest first.
    #[boxed]
    pub async fn page(
        &self,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<KeptReply>, StoreError> {
        self.read(
            reply::table
                .filter(reply::id.lt(before.unwrap_or(i64::MAX)))
                .order(reply::id.desc())
                .limit(limit)
                .select(KeptReply::as_select()),
        )
        .await
    }

    /// How many replies are stored, of this campaign or of all.
    #[boxed]
    pub async fn count(&self, campaign: Option<i64>) -> Result<u64, StoreError> {
        let count: i64 = {
            let query = reply::table.count().into_boxed();
            match campaign {
                Some(id) => self.read_one(query.filter(reply::campaign_id.eq(id))),
                None => self.read_one(query),
            }
        }
        .await?;
        Ok(positive(count))
    }
}

/// The last campaign that was made with this phone as a dedupe key.
async fn campaign_of(
    connection: &mut Connection,
    phone: &str,
) -> QueryResult<Option<(i64, LossyText)>> {
    // Campaign by campaign in the primary key.
    let found: Vec<(i64, LossyText)> = campaign::table
        .inner_join(
            sms_key::table
                .on(sms_key::campaign_id.eq(campaign::id).and(sms_key::dedupe_key.eq(phone))),
        )
        .order(campaign::id.desc())
        .limit(1)
        .select((campaign::id, campaign::name))
        .load(connection)
        .await?;
    Ok(found.into_iter().next())
}

/// Deletes at most a chunk of the replies that came before an instant; returns whether there were any.
pub(crate) async fn purge_before(
    connection: &mut Connection,
    before: Timestamp,
) -> QueryResult<bool> {
    let old: Vec<i64> = reply::table
        .filter(reply::received_at.lt(before))
        .order(reply::received_at)
        .limit(CHUNK)
        .select(reply::id)
        .load(connection)
        .await?;
    delete_replies(connection, &old).await?;
    Ok(!old.is_empty())
}

pub(crate) async fn delete_replies(connection: &mut Connection, ids: &[i64]) -> QueryResult<()> {
    if !ids.is_empty() {
        delete(reply::table.filter(reply::id.eq_any(ids))).execute(connection).await?;
    }
    Ok(())
}

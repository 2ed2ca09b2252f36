//! The outbox: events for hooks, which are written in the transaction of what they are about. Where no hook wants an
//! event, nothing is read or written.

use std::collections::BTreeMap;

use diesel::update;
use smsq_lifecycle::delivery::{Delivery, DeliveryState};
use smsq_message::event::{EventKind, MessageFacts, Subscription, Subscriptions, body};
use smsq_message::sms::{Class, State, Timestamp};

use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, ROWS, in_list};
use crate::tables::column_types::LossyText;
use crate::tables::schema::{campaign, hook, hook_event, sms, sms_failed, sms_sent};

/// An event for one hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub hook: String,
    pub kind: EventKind,
    pub body: String,
    /// The person whose data the body has.
    pub phone: Option<String>,
}

/// Stores events, with random ids.
pub(crate) async fn insert(
    connection: &mut Connection,
    events: &[NewEvent],
    now: Timestamp,
) -> QueryResult<()> {
    for events in events.chunks(ROWS) {
        let rows: Vec<_> = events
            .iter()
            .map(|event| {
                (
                    hook_event::hook.eq(&event.hook),
                    hook_event::event_id.eq(format!("msg_{:032x}", rand::random::<u128>())),
                    hook_event::kind.eq(event.kind.as_str()),
                    hook_event::body.eq(&event.body),
                    hook_event::phone.eq(&event.phone),
                    hook_event::created_at.eq(now),
                    hook_event::at.eq(now),
                )
            })
            .collect();
        NewRows::of(hook_event::table, &rows).insert(connection).await?;
    }
    Ok(())
}

/// Events that were collected for one transaction.
#[derive(Default)]
struct Collected {
    events: Vec<NewEvent>,
    /// By hook.
    skipped: BTreeMap<String, i64>,
}

impl Collected {
    fn add(
        &mut self,
        subscriptions: &Subscriptions,
        kind: EventKind,
        facts: &MessageFacts<'_>,
        phone: &str,
        now: Timestamp,
    ) {
        for subscription in subscriptions.of(kind) {
            if subscription.skips(kind) {
                *self.skipped.entry(subscription.hook.clone()).or_default() += 1;
                continue;
            }
            self.events.push(event(subscription, kind, facts, phone, now));
        }
    }

    async fn store(self, connection: &mut Connection, now: Timestamp) -> QueryResult<()> {
        insert(connection, &self.events, now).await?;
        for (name, count) in self.skipped {
            update(hook::table.find(&name))
                .set(hook::skipped.eq(hook::skipped + count))
                .execute(connection)
                .await?;
        }
        Ok(())
    }
}

fn event(
    subscription: &Subscription,
    kind: EventKind,
    facts: &MessageFacts<'_>,
    phone: &str,
    now: Timestamp,
) -> NewEvent {
    // A vendor's reason may repeat the text or a name. Where no provider has had the message, the reason is our own.
    let is_own = facts.provider.is_none();
    let facts = MessageFacts {
        phone: subscription.parts.phones.then_some(phone),
        reason: facts.reason.filter(|_| is_own || subscription.parts.texts),
        ..facts.clone()
    };
    NewEvent {
        hook: subscription.hook.clone(),
        kind,
        body: body(kind.as_str(), now, &facts),
        phone: (subscription.parts.phones || subscription.parts.texts).then(|| phone.to_owned()),
    }
}

/// Id, campaign, phone, reference, provider, class, code and reason.
type EndedRow = (
    i64,
    String,
    LossyText,
    Option<LossyText>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
);

/// Stores the events of those of the messages that are failed or unknown now.
pub(crate) async fn record_ended(
    connection: &mut Connection,
    subscriptions: &Subscriptions,
    mut ids: Vec<i64>,
    now: Timestamp,
) -> QueryResult<()> {
    if ids.is_empty() {
        return Ok(());
    }
    ids.sort_unstable();
    ids.dedup();
    let mut collected = Collected::default();
    for ids in ids.chunks(ROWS) {
        let list = in_list(ids.iter().copied());
        if subscriptions.want_any(&[EventKind::MessageFailed]) {
            let rows: Vec<EndedRow> = sms_failed::table
                .inner_join(campaign::table.on(campaign::id.eq(sms_failed::campaign_id)))
                .filter(sms_failed::id.eq_any(&list))
                .filter(sms_failed::class.ne(Class::Cancelled.as_str()))
                .order(sms_failed::id)
                .select((
                    sms_failed::id,
                    campaign::name,
                    sms_failed::phone,
                    sms_failed::reference,
                    sms_failed::claimed_provider,
                    sms_failed::class.nullable(),
                    sms_failed::code,
                    sms_failed::reason.nullable(),
                ))
                .kept()
                .load(connection)
                .await?;
            for row in &rows {
                add_ended(&mut collected, subscriptions, EventKind::MessageFailed, row, now);
            }
        }
        if subscriptions.want_any(&[EventKind::MessageUnknown]) {
            let rows: Vec<EndedRow> = sms::table
                .inner_join(campaign::table.on(campaign::id.eq(sms::campaign_id)))
                .filter(sms::id.eq_any(&list))
                .filter(sms::state.eq(State::Unknown.code()))
                .order(sms::id)
                .select((
                    sms::id,
                    campaign::name,
                    sms::phone,
                    sms::reference,
                    sms::claimed_provider,
                    sms::last_class,
                    sms::last_code,
                    sms::last_reason,
                ))
                .kept()
                .load(connection)
                .await?;
            for row in &rows {
                add_ended(&mut collected, subscriptions, EventKind::MessageUnknown, row, now);
            }
        }
    }
    collected.store(connection, now).await
}

fn add_ended(
    collected: &mut Collected,
    subscriptions: &Subscriptions,
    kind: EventKind,
    row: &EndedRow,
    now: Timestamp,
) {
    let (id, campaign, phone, reference, provider, class, code, reason) = row;
    let facts = MessageFacts {
        campaign,
        message: id.to_string(),
        reference: reference.as_ref().map(|reference| reference.text.as_str()),
        // Empty where several have tried it.
        provider: provider.as_deref().filter(|name| !name.is_empty()),
        class: class.as_deref(),
        code: code.as_deref(),
        reason: reason.as_deref(),
        ..MessageFacts::default()
    };
    collected.add(subscriptions, kind, &facts, &phone.text, now);
}

/// Stores the events of sent messages whose delivery has changed its state.
pub(crate) async fn record_deliveries(
    connection: &mut Connection,
    subscriptions: &Subscriptions,
    deliveries: &[(i64, Delivery)],
    now: Timestamp,
) -> QueryResult<()> {
    type Row = (i64, String, LossyText, Option<String>, String, Option<String>);
    let wanted: BTreeMap<i64, (EventKind, &Delivery)> = deliveries
        .iter()
        .filter_map(|(id, delivery)| Some((*id, (kind_of(delivery.state)?, delivery))))
        .filter(|(_, (kind, _))| subscriptions.want_any(&[*kind]))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut collected = Collected::default();
    let ids: Vec<i64> = wanted.keys().copied().collect();
    for ids in ids.chunks(ROWS) {
        let list = in_list(ids.iter().copied());
        let rows: Vec<Row> = sms_sent::table
            .inner_join(campaign::table.on(campaign::id.eq(sms_sent::campaign_id)))
            .filter(sms_sent::id.eq_any(&list))
            .order(sms_sent::id)
            .select((
                sms_sent::id,
                campaign::name,
                sms_sent::phone,
                sms_sent::reference,
                sms_sent::provider,
                sms_sent::message_id,
            ))
            .kept()
            .load(connection)
            .await?;
        for (id, campaign, phone, reference, provider, provider_message) in &rows {
            let Some((kind, delivery)) = wanted.get(id) else {
                continue;
            };
            let failure = delivery.failure.as_ref();
            let facts = MessageFacts {
                campaign,
                message: id.to_string(),
                reference: reference.as_deref(),
                provider: Some(provider),
                provider_message: provider_message.as_deref(),
                delivery: Some(delivery.state.as_str()),
                class: failure.map(|failure| failure.class.as_str()),
                code: failure.and_then(|failure| failure.code.as_deref()),
                reason: failure.map(|failure| failure.reason.as_str()),
                phone: None,
            };
            collected.add(subscriptions, *kind, &facts, &phone.text, now);
        }
    }
    collected.store(connection, now).await
}

fn kind_of(state: DeliveryState) -> Option<EventKind> {
    match state {
        DeliveryState::Delivered => Some(EventKind::MessageDelivered),
        DeliveryState::Undelivered | DeliveryState::Expired => Some(EventKind::MessageUndelivered),
        DeliveryState::Awaiting | DeliveryState::NoReport => None,
    }
}

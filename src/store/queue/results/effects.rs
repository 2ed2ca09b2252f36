//! What the transitions of messages leave for the end of their transaction.

use crate::message::event::Subscriptions;
use crate::message::sms::Timestamp;
use crate::store::connection::Connection;
use crate::store::connection::QueryResult;
use crate::store::events::outbox;
use crate::store::limits::spending::Spending;

/// The counters of budgets, for which others wait only during the end of the transaction, and the messages that hooks may
/// want to know of, whose events are written together.
#[must_use = "it is stored with its messages"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Effects {
    pub(in crate::store::queue) spending: Spending,
    /// Messages that failed or became unknown.
    pub(in crate::store::queue) ended: Vec<i64>,
}

impl From<Spending> for Effects {
    fn from(spending: Spending) -> Self {
        Self { spending, ended: Vec::new() }
    }
}

impl Effects {
    pub(in crate::store::queue) fn extend(&mut self, other: impl Into<Self>) {
        let other = other.into();
        self.spending.extend(other.spending);
        self.ended.extend(other.ended);
    }

    pub(in crate::store) async fn store(
        self,
        connection: &mut Connection,
        subscriptions: &Subscriptions,
        now: Timestamp,
    ) -> QueryResult<()> {
        outbox::record_ended(connection, subscriptions, self.ended, now).await?;
        self.spending.store(connection).await
    }
}

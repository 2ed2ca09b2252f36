//! What the transitions of messages leave for the end of their transaction.

use smsq_message::event::Subscriptions;
use smsq_message::sms::Timestamp;

use crate::connection::Connection;
use crate::connection::QueryResult;
use crate::events::outbox;
use crate::limits::spending::Spending;

/// The counters of budgets, for which others wait only during the end of the transaction, and the messages that hooks may
/// want to know of, whose events are written together.
#[must_use = "it is stored with its messages"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(in crate::queue) spending: Spending,
    /// Messages that failed or became unknown.
    pub(in crate::queue) ended: Vec<i64>,
}

impl From<Spending> for Effects {
    fn from(spending: Spending) -> Self {
        Self { spending, ended: Vec::new() }
    }
}

impl Effects {
    pub(in crate::queue) fn extend(&mut self, other: impl Into<Self>) {
        let other = other.into();
        self.spending.extend(other.spending);
        self.ended.extend(other.ended);
    }

    pub(crate) async fn store(
        self,
        connection: &mut Connection,
        subscriptions: &Subscriptions,
        now: Timestamp,
    ) -> QueryResult<()> {
        outbox::record_ended(connection, subscriptions, self.ended, now).await?;
        self.spending.store(connection).await
    }
}

//! Messages that another provider sent, because theirs was unavailable.

use std::time::Duration;

use serde::Serialize;
use smsq_message::sms::Timestamp;
use smsq_message::text::messages;
use smsq_store::Failover;

use super::as_text;
use super::local::LocalTime;
use super::reason::plain_reason;

/// Outages that follow each other sooner than this are shown as one.
const GAP: Duration = Duration::from_secs(600);

/// Messages of one campaign that went from one provider to another, as all workers saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MovedMessages {
    #[serde(skip)]
    pub campaign_id: i64,
    pub provider: String,
    pub fallback: String,
    /// When the provider became unavailable.
    #[serde(serialize_with = "as_text")]
    pub since: Timestamp,
    /// When the last message was moved.
    #[serde(serialize_with = "as_text")]
    pub last_at: Timestamp,
    /// The last one.
    pub reason: String,
    pub messages: u64,
}

impl MovedMessages {
    /// By campaign, provider, fallback and time; outages that follow each other soon are one.
    pub fn of(mut failovers: Vec<Failover>) -> Vec<Self> {
        failovers.sort_unstable();
        let mut all: Vec<Self> = Vec::new();
        for failover in failovers {
            let messages = failover.messages.unsigned_abs();
            let continues = |last: &&mut Self| {
                let path = (last.campaign_id, &last.provider, &last.fallback);
                path == (failover.campaign_id, &failover.provider, &failover.fallback)
                    && failover.since <= last.last_at.plus(GAP)
            };
            match all.last_mut().filter(continues) {
                Some(last) => {
                    last.messages += messages;
                    if failover.last_at >= last.last_at {
                        last.last_at = failover.last_at;
                        last.reason = failover.reason;
                    }
                }
                None => all.push(Self {
                    campaign_id: failover.campaign_id,
                    provider: failover.provider,
                    fallback: failover.fallback,
                    since: failover.since,
                    last_at: failover.last_at,
                    reason: failover.reason,
                    messages,
                }),
            }
        }
        all
    }

    /// `312 messages went by` …, and when.
    pub fn describe(&self, local: &LocalTime) -> (String, String) {
        let (count, fallback, provider) = (messages(self.messages), &self.fallback, &self.provider);
        let reason = match self.reason.as_str() {
            "" => String::new(),
            reason => format!(": {}", plain_reason(reason)),
        };
        let text = format!("{count} by `{fallback}`, because `{provider}` was unavailable{reason}");
        (text, local.span(self.since, self.last_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failover(provider: &str, since: i64, last_at: i64, messages: i64) -> Failover {
        Failover {
            campaign_id: 1,
            provider: provider.to_owned(),
            fallback: "b".to_owned(),
            since: Timestamp::from_millis(since),
            last_at: Timestamp::from_millis(last_at),
            reason: format!("why {since}"),
            messages,
        }
    }

    #[test]
    fn reason_is_readable_also_as_json() {
        let json = Failover {
            reason: r#"401: {"message":"wrong key"}"#.to_owned(),
            ..failover("a", 1_000, 4_000, 1)
        };
        let moved = MovedMessages::of(vec![json]);
        let (text, _) = moved[0].describe(&LocalTime::default());
        assert_eq!(text, "1 message by `b`, because `a` was unavailable: 401: wrong key");
    }

    #[test]
    fn what_several_workers_saw_of_an_outage_is_one() {
        let moved = MovedMessages::of(vec![
            failover("a", 2_000, 9_000, 5),
            failover("c", 2_000, 3_000, 1),
            failover("a", 1_000, 4_000, 7),
            failover("a", 700_000, 800_000, 2),
        ]);
        let shown = moved
            .iter()
            .map(|moved| (moved.provider.as_str(), moved.messages, moved.last_at.as_millis()));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [("a", 12, 9_000), ("a", 2, 800_000), ("c", 1, 3_000)]
        );
        assert_eq!(moved[0].reason, "why 2000");
        assert_eq!(moved[0].since, Timestamp::from_millis(1_000));
    }
}

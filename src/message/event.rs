//! Events: what happens to messages and campaigns that other programs want to know, and which hooks want which of them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Deserializer, Serialize};

use super::sms::Timestamp;
use super::text::did_you_mean;

/// The name of the hook that is the program of section `[notify]`.
pub const NOTIFY: &str = "notify";

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A campaign has no message left to send.
    CampaignDone,
    /// None of a campaign's messages was accepted for long, although some should be.
    CampaignStuck,
    MessageFailed,
    MessageUnknown,
    MessageDelivered,
    /// Also a message that expired at the provider.
    MessageUndelivered,
    ReplyReceived,
}

impl EventKind {
    pub const ALL: [Self; 7] = [
        Self::CampaignDone,
        Self::CampaignStuck,
        Self::MessageFailed,
        Self::MessageUnknown,
        Self::MessageDelivered,
        Self::MessageUndelivered,
        Self::ReplyReceived,
    ];

    /// The word in the configuration, and member `type` of the body.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CampaignDone => "campaign.done",
            Self::CampaignStuck => "campaign.stuck",
            Self::MessageFailed => "message.failed",
            Self::MessageUnknown => "message.unknown",
            Self::MessageDelivered => "message.delivered",
            Self::MessageUndelivered => "message.undelivered",
            Self::ReplyReceived => "reply.received",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        found.ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str);
            let hint = did_you_mean(word, words)
                .unwrap_or_else(|| format!("the kinds are {}", words.join(", ")));
            format!("unknown event `{word}`: {hint}")
        })
    }
}

impl<'de> Deserialize<'de> for EventKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        word.parse().map_err(serde::de::Error::custom)
    }
}

/// What the bodies of events contain of the messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct BodyParts {
    pub phones: bool,
    /// The texts of replies, and the reasons of providers.
    pub texts: bool,
}

/// What one hook wants.
#[derive(Debug, Default)]
pub struct Subscription {
    pub hook: String,
    pub kinds: BTreeSet<EventKind>,
    pub parts: BodyParts,
    /// More events wait than are stored: `message.delivered` is only counted.
    is_full: AtomicBool,
}

impl Subscription {
    pub fn new(hook: String, kinds: BTreeSet<EventKind>, parts: BodyParts) -> Self {
        Self { hook, kinds, parts, is_full: AtomicBool::new(false) }
    }

    /// Sets whether more events wait than are stored, so that `message.delivered` is only counted.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Whether an event of this kind is only counted.
    pub fn skips(&self, kind: EventKind) -> bool {
        kind == EventKind::MessageDelivered && self.is_full.load(Ordering::Relaxed)
    }
}

/// What all hooks want.
#[derive(Debug, Default)]
pub struct Subscriptions(Vec<Subscription>);

impl Subscriptions {
    pub fn new(subscriptions: Vec<Subscription>) -> Self {
        Self(subscriptions)
    }

    pub fn all(&self) -> &[Subscription] {
        &self.0
    }

    /// Those that want this kind.
    pub fn of(&self, kind: EventKind) -> impl Iterator<Item = &Subscription> {
        self.0.iter().filter(move |subscription| subscription.kinds.contains(&kind))
    }

    /// Whether any hook wants one of these kinds.
    pub fn want_any(&self, kinds: &[EventKind]) -> bool {
        kinds.iter().any(|kind| self.of(*kind).next().is_some())
    }
}

/// A message, in the body of an event.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MessageFacts<'a> {
    pub campaign: &'a str,
    /// Our id.
    pub message: String,
    pub reference: Option<&'a str>,
    pub provider: Option<&'a str>,
    /// The provider's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_message: Option<&'a str>,
    /// What became of a sent message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<&'a str>,
    pub class: Option<&'a str>,
    pub code: Option<&'a str>,
    pub reason: Option<&'a str>,
    /// Only where a hook includes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<&'a str>,
}

/// A campaign, in the body of an event.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CampaignFacts<'a> {
    pub campaign: &'a str,
    pub state: &'a str,
    /// Why it is paused or stopped.
    pub reason: Option<&'a str>,
    pub queued: u64,
    pub sent: u64,
    pub failed: u64,
    pub unknown: u64,
    pub cancelled: u64,
    /// Since when no message was accepted, for [`EventKind::CampaignStuck`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// A reply, in the body of an event.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplyFacts<'a> {
    pub reply: String,
    pub provider: &'a str,
    pub campaign: Option<&'a str>,
    /// The number that it was sent to.
    pub to: Option<&'a str>,
    /// Whether it asks for no more messages.
    pub is_stop: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<&'a str>,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    r#type: &'a str,
    timestamp: String,
    data: &'a T,
}

/// The body of an event, as Standard Webhooks describes it. `at`: when it happened.
pub fn body<T: Serialize>(kind: &str, at: Timestamp, data: &T) -> String {
    let envelope = Envelope { r#type: kind, timestamp: at.to_string(), data };
    serde_json::to_string(&envelope).expect("its keys are texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kind_suggests_a_similar_one() {
        for kind in EventKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        let error = "message.fail".parse::<EventKind>().expect_err("unknown");
        assert!(error.starts_with("unknown event `message.fail`: "), "{error}");
        assert!(error.contains("message.failed"), "{error}");
    }

    #[test]
    fn body_has_no_phone_unless_it_is_given() {
        let facts = MessageFacts {
            campaign: "spring",
            message: "7".to_owned(),
            class: Some("recipient"),
            ..MessageFacts::default()
        };
        let at = Timestamp::from_millis(1_763_715_600_000);
        assert_eq!(
            body(EventKind::MessageFailed.as_str(), at, &facts),
            r#"{"type":"message.failed","timestamp":"2025-11-21T09:00:00Z","data":{"campaign":"spring","message":"7","reference":null,"provider":null,"class":"recipient","code":null,"reason":null}}"#
        );
    }

    #[test]
    fn full_hook_skips_only_deliveries() {
        let subscription =
            Subscription::new("crm".to_owned(), EventKind::ALL.into(), BodyParts::default());
        assert!(!subscription.skips(EventKind::MessageDelivered));
        subscription.set_full(true);
        assert!(subscription.skips(EventKind::MessageDelivered));
        assert!(!subscription.skips(EventKind::MessageFailed));
    }
}

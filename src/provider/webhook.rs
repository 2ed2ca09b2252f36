//! What vendors post to `/receipts/{provider}/{token}`: the request, and the receipts and replies in it. The server
//! that receives requests is elsewhere.

use std::fmt;

use http::{HeaderMap, Method};
use serde::Serialize;
use smsq_message::phone::{Phone, Region};
use smsq_message::receipt::Receipt;
use smsq_message::sms::Timestamp;

/// The content type of an answer that is not JSON.
pub(super) const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// A request that a vendor posted to `/receipts/{provider}/{token}`.
#[derive(Clone, Copy, Debug)]
pub struct PostedRequest<'a> {
    pub method: &'a Method,
    /// The whole public URL with its query, as the vendor signed it.
    pub url: &'a str,
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
    pub now: Timestamp,
}

/// What a request contained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    pub receipts: Vec<Receipt>,
    pub replies: Vec<Reply>,
    /// Entries that are neither: without an id, without a number, or not an object.
    pub unreadable: u64,
}

/// A message that a recipient sent back.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// As the vendor writes it.
    pub phone: String,
    /// The country of numbers that the vendor writes without a country code.
    pub region: Option<Region>,
    pub text: String,
    /// The vendor's id, which a repeated post has again.
    pub id: Option<String>,
    /// The number that it was sent to, as the vendor writes it.
    pub to: Option<String>,
}

impl Reply {
    /// The phone that replied. Where the vendor writes neither `+` nor, by its section, national numbers, the digits may
    /// begin with a country code or be those of `default_region`: then it is every phone that they can be, because a
    /// recipient who wants no more messages must get none. Empty: not a number.
    pub fn phones(&self, default_region: Option<Region>) -> Vec<Phone> {
        let written = self.phone.trim();
        let digits: String = written.chars().filter(char::is_ascii_digit).collect();
        let international = || Phone::parse(&format!("+{digits}"), None).ok();
        let national = |region| Phone::parse(&digits, Some(region)).ok();
        if written.starts_with('+') {
            return international().into_iter().collect();
        }
        if let Some(region) = self.region {
            let phone = national(region).or_else(international);
            return phone.into_iter().collect();
        }
        let mut phones: Vec<Phone> = international().into_iter().collect();
        phones.extend(default_region.and_then(national));
        phones.dedup();
        phones
    }
}

/// Phone and text are personal data, so neither is printed.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

/// Why a request contains nothing to store. The texts have no phones and no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The provider's section has no `webhook`. Answer 404.
    #[error("the provider has no section `webhook`")]
    NotConfigured,
    /// The signature is missing, wrong or too old. Answer 403.
    #[error("{0}")]
    Signature(String),
    /// The body is not what the section describes. Answer 400.
    #[error("{0}")]
    Unreadable(String),
    /// The signature is missing; the vendor signs the request when it repeats it after a 5xx. Answer 503.
    #[error("the request is not signed; the vendor repeats it with a signature")]
    Unsigned,
}

/// How posted receipts are read and checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Webhook {
    /// The name of the vendor's signature scheme; `None`: it does not sign, and only the token in the URL protects it.
    pub signature: Option<&'static str>,
    /// Whether messages that are sent from now on await posted receipts. Requests are read in any case.
    pub is_enabled: bool,
    /// Whether signatures are checked: the secret is set.
    pub is_checked: bool,
    /// Why signatures are not checked, where the vendor signs.
    pub unchecked_because: Option<String>,
    /// Whether messages of recipients are read, too.
    pub has_replies: bool,
    /// What must be set up at the vendor, and what is not checked.
    pub requires: Option<String>,
    /// The setting of the provider that takes the address for receipts, if requests contain it.
    pub url_setting: Option<String>,
}

/// Words that mean "no more messages", without spaces and punctuation, in capitals. They are documented by Twilio,
/// AWS, Telnyx and Vonage, and for China by Aliyun and Tencent.
const STOP_WORDS: [&str; 27] = [
    "STOP",
    "STOPALL",
    "UNSUBSCRIBE",
    "CANCEL",
    "END",
    "QUIT",
    "REVOKE",
    "REMOVE",
    "OPTOUT",
    "STOPP",
    "ARRET",
    "ARRÊT",
    "ALTO",
    "BAJA",
    "PARAR",
    "SAIR",
    "TD",
    "T",
    "R",
    "退",
    "退订",
    "退訂",
    "回T退订",
    "拒收",
    "取消",
    "取消订阅",
    "配信停止",
];

/// Whether the whole text of a reply asks for no more messages.
pub fn asks_to_stop(text: &str) -> bool {
    // Longer texts are never one of the words.
    let word = text.chars().filter(|c| c.is_alphanumeric()).take(32);
    let word: String = word.map(half_width).flat_map(char::to_uppercase).collect();
    STOP_WORDS.contains(&word.as_str())
}

/// Chinese and Japanese keyboards write Latin letters in full width.
fn half_width(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_text_asks_to_stop() {
        for text in [
            "STOP",
            "stop",
            " Stop. ",
            "\"STOP\"",
            "stop all",
            "Opt-out",
            "STOP!!\n",
            "Arrêt",
            "ARRE\u{302}T",
            "arret",
            "退订",
            "【退订】",
            "td",
            "ＴＤ",
            "ｔ",
            "T",
            "回T退订",
            "unsubscribe",
            "End",
            "quit",
            "cancel",
            "stopp",
            "baja",
            "alto",
            "R",
        ] {
            assert!(asks_to_stop(text), "{text}");
        }
        for text in [
            "",
            " ",
            "...",
            "please do not stop",
            "stop it",
            "stopped",
            "the end",
            "yes",
            "no",
            "START",
            "TDX",
            "我要退订你们的短信",
            "T1",
            "\u{1f6d1}",
        ] {
            assert!(!asks_to_stop(text), "{text}");
        }
        assert!(!asks_to_stop(&"STOP".repeat(100_000)));
    }

    #[test]
    fn reply_is_of_every_phone_that_its_number_can_be() {
        let region = |code: &str| code.parse::<Region>().ok();
        for (written, vendors, default, expected) in [
            ("+44 7400 123456", "", "", &["+447400123456"][..]),
            ("447400123456", "", "", &["+447400123456"]),
            ("447400123456", "", "GB", &["+447400123456"]),
            ("07400123456", "", "GB", &["+447400123456"]),
            ("07400123456", "GB", "", &["+447400123456"]),
            ("07400 123456", "", "", &[]),
            // A mobile of the mainland, or of Maryland.
            ("13012345678", "CN", "US", &["+8613012345678"]),
            ("13012345678", "", "CN", &["+13012345678", "+8613012345678"]),
            ("447400123456", "CN", "", &["+447400123456"]),
            ("SHOP", "CN", "GB", &[]),
            ("", "", "GB", &[]),
        ] {
            let reply = Reply {
                phone: written.to_owned(),
                region: region(vendors),
                text: "STOP".to_owned(),
                id: None,
                to: None,
            };
            let phones = reply.phones(region(default));
            let phones: Vec<&str> = phones.iter().map(Phone::as_str).collect();
            assert_eq!(phones, expected, "{written} {vendors} {default}");
        }
    }

    #[test]
    fn reply_is_not_printed() {
        let reply = Reply {
            phone: "447400123456".to_owned(),
            region: None,
            text: "STOP".to_owned(),
            id: None,
            to: None,
        };
        let printed = format!("{reply:?}");
        assert!(!printed.contains("4474") && !printed.contains("STOP"), "{printed}");
    }
}

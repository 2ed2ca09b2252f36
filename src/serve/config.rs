//! Section `[serve]` of the configuration.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use smsq_message::secret::Secret;
use url::Url;

use super::tokens::{AccessTokens, Texts};

/// Section `[serve]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Where others reach the server, if it is behind a proxy.
    #[serde(deserialize_with = "url")]
    pub public_url: Option<Url>,
    /// Proxies that tell the address of their client in `X-Forwarded-For`.
    #[serde(deserialize_with = "networks")]
    pub trusted_proxies: Vec<IpNet>,
    pub tokens: Secret<AccessTokens>,
    /// No more messages are taken for a campaign while this many of it are due.
    pub max_waiting: u64,
    /// No more campaigns are created for clients while there are this many.
    pub max_campaigns: u64,
    /// The secret from which the URLs for receipts are made.
    pub receipt_key: Secret<String>,
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    Url::parse(&text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom("not a URL of http or https"))
}

/// A list, or a text with commas from the environment, of addresses and networks.
fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Texts::deserialize(deserializer)?.into_vec();
    texts
        .iter()
        .map(|text| {
            let address = text.parse::<IpAddr>().map(IpNet::from);
            address.or_else(|_| text.parse())
        })
        .collect::<Result<Vec<IpNet>, _>>()
        .map_err(serde::de::Error::custom)
}

/// The shortest secret for the URLs of receipts, in characters: a vendor that knows its own URL could guess a shorter
/// one, and post receipts of other vendors.
const MIN_RECEIPT_KEY: usize = 16;

impl Config {
    /// What is wrong with the access tokens, as what is expected of them.
    pub fn tokens_problem(&self) -> Option<String> {
        self.tokens.expose().problem()
    }

    /// Whether the secret for the URLs of receipts is not set, or long enough.
    pub fn is_receipt_key_valid(&self) -> bool {
        let length = self.receipt_key.expose().chars().count();
        length == 0 || length >= MIN_RECEIPT_KEY
    }

    /// Whether others than this machine can reach the server.
    pub fn is_open(&self) -> bool {
        !self.listen.ip().is_loopback() || self.public_url.is_some()
    }

    /// `None`: receipts are not taken.
    pub fn receipt_key(&self) -> Option<&Secret<String>> {
        let key = &self.receipt_key;
        Some(key).filter(|key| !key.expose().is_empty())
    }
}

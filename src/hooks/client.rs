//! Posts events: a request is sent once, to an address that was checked, redirects are not followed, and little of the
//! response is read.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, StatusCode};
use jiff::fmt::rfc2822;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use smsq_message::sms::Timestamp;
use smsq_provider::client::{cause_text, tls_config};
use url::Url;

use super::address::is_public;
use super::config::{HookConfig, HookSecret};
use super::delivery::{DeliveryAttempt, ReceiverAnswer};
use super::signature::SigningKey;

const AGENT: &str = concat!("smsq/", env!("CARGO_PKG_VERSION"));
/// More of a response is not read.
const MAX_RESPONSE: usize = 64 << 10;

/// Why a hook cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("hook `{hook}`: {problem}")]
pub struct HookError {
    hook: String,
    problem: String,
    pub hint: Option<String>,
}

/// The client of one hook.
pub(super) struct HookClient {
    client: reqwest::Client,
    url: Url,
    key: SigningKey,
}

impl HookClient {
    pub(super) fn new(
        config: &HookConfig,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, HookError> {
        let error = |problem: String, hint: Option<String>| HookError {
            hook: config.name.clone(),
            problem,
            hint,
        };
        let secret = read_secret(config.secret.expose(), environment)
            .map_err(|(problem, hint)| error(problem, Some(hint)))?;
        let key = SigningKey::parse(&secret)
            .map_err(|problem| error(format!("invalid secret: it {problem}"), None))?;
        let url = config.url.expose().0.clone();
        let is_plain = url.scheme() == "http";
        let tls = tls_config(!is_plain).map_err(|cause| error(cause.to_string(), None))?;
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .timeout(config.timeout);
        // A proxy resolves names itself, so that nothing would be known of the address.
        let builder = if config.allow_private {
            builder
        } else {
            builder.no_proxy().dns_resolver(PublicResolver)
        };
        let client = builder.build().map_err(|cause| error(cause_text(&cause), None))?;
        Ok(Self { client, url, key })
    }

    pub(super) async fn post(&self, attempt: &DeliveryAttempt<'_>) -> ReceiverAnswer {
        let at = attempt.at.as_millis() / 1_000;
        let request = self
            .client
            .post(self.url.clone())
            .header(USER_AGENT, AGENT)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", attempt.id)
            .header("webhook-timestamp", at)
            .header("webhook-signature", self.key.sign(attempt.id, at, attempt.body))
            .body(attempt.body.to_owned());
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_timeout() => return failed("no answer in time", None),
            Err(error) => return failed(cause_text(&error), None),
        };
        let (status, wait) = (response.status(), retry_after(response.headers(), attempt.at));
        let mut read = 0;
        // Read to its end, the connection can be used again.
        while read < MAX_RESPONSE
            && let Ok(Some(chunk)) = response.chunk().await
        {
            read += chunk.len();
        }
        answer(status, wait)
    }
}

fn answer(status: StatusCode, retry_after: Option<Duration>) -> ReceiverAnswer {
    match status {
        StatusCode::GONE => ReceiverAnswer::Gone,
        status if status.is_success() => ReceiverAnswer::Delivered { summary: status.to_string() },
        status if status.is_redirection() => failed(
            format!("{status}: redirects are not followed, set the final `url`"),
            retry_after,
        ),
        status => failed(status.to_string(), retry_after),
    }
}

fn failed(error: impl Into<String>, retry_after: Option<Duration>) -> ReceiverAnswer {
    ReceiverAnswer::Failed { error: error.into(), retry_after }
}

/// A number of seconds, or a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Timestamp::from_millis(date.as_millisecond()).since(now))
}

/// The error has a hint.
fn read_secret(
    source: &HookSecret,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<String, (String, String)> {
    match source {
        HookSecret::Env(variable) => {
            environment(variable).filter(|value| !value.is_empty()).ok_or_else(|| {
                let problem =
                    format!("missing secret: the environment variable `{variable}` is not set");
                let hint = format!("set `{variable}` to `whsec_` and 24 to 64 bytes in base64");
                (problem, hint)
            })
        }
        HookSecret::File(path) => std::fs::read_to_string(path).map_err(|error| {
            let problem = format!("cannot read its secret from `{}`: {error}", path.display());
            let hint = "write the secret into that file, or name another file or a variable";
            (problem, hint.to_owned())
        }),
    }
}

/// Resolves names, and refuses those with an address that is not public. Connections are made to the addresses that it
/// returns, so a name cannot change between the check and the connection.
struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            check(&host, &found)?;
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

fn check(host: &str, found: &[SocketAddr]) -> Result<(), Box<dyn Error + Send + Sync>> {
    match found.iter().find(|address| !is_public(address.ip())) {
        Some(private) => {
            let address = private.ip();
            let problem = format!(
                "`{host}` has the address {address}, which is not public: set `allow_private = true` if that is intended"
            );
            Err(io::Error::new(io::ErrorKind::PermissionDenied, problem).into())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_a_private_address_is_refused() {
        let address = |text: &str| SocketAddr::new(text.parse().expect(text), 443);
        assert!(check("crm.example", &[address("8.8.8.8")]).is_ok());
        let both = [address("8.8.8.8"), address("127.0.0.1")];
        let error = check("crm.example", &both).expect_err("private");
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let now = Timestamp::from_millis(1_763_715_600_000);
        let read = |text: &'static str| {
            let value = http::HeaderValue::from_static(text);
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value)]);
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(read("120"), Some(120));
        assert_eq!(read("Fri, 21 Nov 2025 09:01:00 GMT"), Some(60));
        assert_eq!(read("Fri, 21 Nov 2025 08:00:00 GMT"), Some(0));
        assert_eq!(read("soon"), None);
    }

    #[test]
    fn only_success_is_a_delivery() {
        let of = |code: u16| answer(StatusCode::from_u16(code).expect("a status"), None);
        for code in [200, 201, 204] {
            assert!(matches!(of(code), ReceiverAnswer::Delivered { .. }), "{code}");
        }
        for code in [301, 307, 400, 404, 429, 500, 503] {
            assert!(matches!(of(code), ReceiverAnswer::Failed { .. }), "{code}");
        }
        assert_eq!(of(410), ReceiverAnswer::Gone);
    }
}

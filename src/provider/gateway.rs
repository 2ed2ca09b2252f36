//! The only HTTP client. It sends a request once, and where no answer comes it tells what is certainly not
//! sent from what is perhaps sent: that is the difference between sending again and asking the operator.

#[cfg(test)]
mod tests;

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};

use super::Provider;
use super::quote::{QUOTED, cut};
use crate::sms::{Cause, Class, Outcome};

/// The most of an answer that is read.
pub const MAX_ANSWER: usize = 1 << 20;

const USER_AGENT: &str = concat!("smsq/", env!("CARGO_PKG_VERSION"));
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// The connections to one provider.
#[derive(Clone, Debug)]
pub struct Gateway {
    client: reqwest::Client,
    timeout: Duration,
    connect: Duration,
}

/// Why there can be no client, such as an unusable store of certificates.
#[derive(Debug, thiserror::Error)]
#[error("provider `{provider}`: no HTTP client can be made: {reason}")]
pub struct GatewayError {
    provider: String,
    reason: String,
}

impl Gateway {
    /// Connections for so many requests at once.
    pub fn new(provider: &Provider, slots: usize) -> Result<Self, GatewayError> {
        let timeout = provider.timeout();
        // A connection that takes all the time there is must still be seen as one that never was.
        let connect = (timeout * 9 / 10).min(MAX_CONNECT);
        let mut builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .http1_only()
            .timeout(timeout)
            .connect_timeout(connect)
            .pool_idle_timeout(provider.idle())
            .pool_max_idle_per_host(slots)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .tcp_nodelay(true);
        if is_loopback(provider.base()) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| GatewayError {
            provider: provider.name().to_owned(),
            reason: reason(&error),
        })?;
        Ok(Self {
            client,
            timeout,
            connect,
        })
    }

    /// Sends the request once. `Err` is what becomes of the message where no answer came.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Outcome> {
        let request = reqwest::Request::try_from(request)
            .map_err(|error| not_sent(format!("the request cannot be made: {}", reason(&error))))?;
        let response = self.client.execute(request).await;
        let mut response = response.map_err(|error| self.classified(&error))?;
        let read = read(&mut response).await;
        let body = match read {
            (body, None) => body,
            // What else there was to read cannot change a refusal, but it could have held the id.
            (body, Some(_)) if !response.status().is_success() => body,
            (_, Some(fault)) => {
                let fault = match fault {
                    Fault::TooLong => "is longer than 1 MiB".to_owned(),
                    Fault::Broken(error) => {
                        format!("broke off: {}", described(&error, self.timeout))
                    }
                };
                let status = response.status();
                return Err(unknown(format!("the answer {} {fault}", status.as_u16())));
            }
        };
        let mut answer = Response::new(body);
        *answer.status_mut() = response.status();
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
    }

    fn classified(&self, error: &reqwest::Error) -> Outcome {
        if error.is_connect() {
            let cause = described(error, self.connect);
            return not_sent(format!("no connection: {cause}"));
        }
        if error.is_builder() {
            return not_sent(format!("the request cannot be made: {}", reason(error)));
        }
        unknown(format!("no answer: {}", described(error, self.timeout)))
    }
}

fn described(error: &reqwest::Error, allowed: Duration) -> String {
    if error.is_timeout() {
        return format!("not within {} s", allowed.as_secs_f64());
    }
    reason(error)
}

enum Fault {
    TooLong,
    Broken(reqwest::Error),
}

/// The body as far as it can be read.
async fn read(response: &mut reqwest::Response) -> (Bytes, Option<Fault>) {
    let mut body = BytesMut::new();
    loop {
        match response.chunk().await {
            Ok(None) => return (body.freeze(), None),
            Ok(Some(chunk)) if body.len() + chunk.len() > MAX_ANSWER => {
                body.extend_from_slice(&chunk[..MAX_ANSWER - body.len()]);
                return (body.freeze(), Some(Fault::TooLong));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Err(error) => return (body.freeze(), Some(Fault::Broken(error))),
        }
    }
}

/// The causes behind `error`, outermost first, without the url: its query may hold secrets.
fn reason(error: &(dyn Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        cause = error.source();
        // The client's own errors name the url, its pool's say nothing that a person could use, and many
        // errors repeat what they wrap.
        let is_wrapper = text.starts_with("client error (") && cause.is_some();
        let is_known = words.iter().any(|before| before.contains(&text));
        if !error.is::<reqwest::Error>() && !is_wrapper && !is_known {
            words.push(text);
        }
    }
    if words.is_empty() {
        return "the request failed".to_owned();
    }
    cut(&words.join(": "), QUOTED).to_owned()
}

fn not_sent(reason: String) -> Outcome {
    Outcome::Unavailable {
        cause: Cause::new(Class::Unavailable, reason),
        retry_after: None,
    }
}

fn unknown(reason: String) -> Outcome {
    Outcome::Unknown(Cause::new(Class::Unknown, reason))
}

fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(url::Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    }
}

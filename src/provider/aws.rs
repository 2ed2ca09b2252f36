//! What the two SMS APIs of Amazon share: the region, and signature version 4 by Amazon's own crate.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::Request;

use super::ProviderError;
use super::stanza::Stanza;
use super::vendor::{Common, post, refused};
use crate::sms::{Outcome, Timestamp};

/// A `POST` of `body` with the headers that sign it; `more` are headers that are signed too.
pub(super) fn signed(
    common: &Common,
    region: &str,
    service: &str,
    now: Timestamp,
    kind: &'static str,
    more: &[(&'static str, &str)],
    body: String,
) -> Result<Request<Bytes>, Outcome> {
    let mut request = post(&common.base, kind, None, body)?;
    for (name, value) in more {
        let value = http::HeaderValue::from_str(value)
            .map_err(|_| refused(format!("header `{name}` cannot carry this value")))?;
        request.headers_mut().insert(*name, value);
    }
    sign_it(common, region, service, now, &mut request)
        .map_err(|error| refused(format!("the request cannot be signed: {error}")))?;
    Ok(request)
}

fn sign_it(
    common: &Common,
    region: &str,
    service: &str,
    now: Timestamp,
    request: &mut Request<Bytes>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let identity = Credentials::new(
        common.secret("access_key_id"),
        common.secret("secret_access_key"),
        common.secrets.named("session_token").map(str::to_owned),
        None,
        "smsq",
    )
    .into();
    let since_epoch = Duration::from_millis(u64::try_from(now.as_millis())?);
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service)
        .time(SystemTime::UNIX_EPOCH + since_epoch)
        .settings(SigningSettings::default())
        .build()?
        .into();
    let headers: Vec<(&str, &str)> = request
        .headers()
        .iter()
        .map(|(name, value)| Ok((name.as_str(), value.to_str()?)))
        .collect::<Result<_, http::header::ToStrError>>()?;
    let signable = SignableRequest::new(
        request.method().as_str(),
        request.uri().to_string(),
        headers.into_iter(),
        SignableBody::Bytes(request.body()),
    )?;
    let (instructions, _) = sign(signable, &params)?.into_parts();
    instructions.apply_to_request_http1x(request);
    Ok(())
}

/// The address of the region, which is signed with it.
pub(super) fn url(stanza: &Stanza<'_>, service: &str) -> Result<String, ProviderError> {
    let region: String = stanza.required("region")?;
    let top = if region.starts_with("cn-") { ".cn" } else { "" };
    Ok(format!("https://{service}.{region}.amazonaws.com{top}/"))
}

/// What looks wrong about an access key, by its shape.
pub(super) fn doubts(common: &Common) -> Vec<String> {
    let fits = |id: &str| id.len() >= 16 && (id.starts_with("AKIA") || id.starts_with("ASIA"));
    let mut doubts = common.doubt("access_key_id", "an access key ID (`AKIA…`)", fits);
    let is_temporary = common.secret("access_key_id").starts_with("ASIA");
    if is_temporary && common.secrets.named("session_token").is_none() {
        doubts.push("an access key `ASIA…` needs secret `session_token` too".to_owned());
    }
    doubts
}

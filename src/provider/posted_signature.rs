//! The signatures of requests that vendors post, tested against their documentation and their own libraries. All
//! comparisons with what a secret makes take the same time for every wrong signature.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use http::header::AUTHORIZATION;
use md5::{Digest, Md5};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::Value as Json;
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};
use smsq_message::sms::Timestamp;
use subtle::ConstantTimeEq;

use super::signing::sha256;
use super::webhook::{PostedRequest, WebhookError};

/// The schemes: the name in the configuration, and the check.
pub(super) const SCHEMES: [(&str, Verify); 9] = [
    ("twilio", twilio),
    ("vonage", vonage),
    ("vonage-jwt", vonage_jwt),
    ("messagebird", messagebird),
    ("telnyx", telnyx),
    ("plivo", |request| plivo(request, false)),
    ("plivo-v3", |request| plivo(request, true)),
    ("sinch", sinch),
    ("sms-gate", sms_gate),
];

/// Fails unless the request is signed with its secret.
pub(super) type Verify = fn(&SignedRequest<'_>) -> Result<(), WebhookError>;

/// A request, its query and form as pairs, and what its signature is checked with.
pub(super) struct SignedRequest<'a> {
    pub(super) posted: &'a PostedRequest<'a>,
    pub(super) query: &'a [(String, String)],
    /// Empty where the body is not a form.
    pub(super) form: &'a [(String, String)],
    /// The body, where it is JSON.
    pub(super) json: Option<&'a Json>,
    pub(super) secret: &'a str,
    /// How old a signed time may be.
    pub(super) max_age: Duration,
}

/// A vendor's clock may be ahead of ours by this.
const MAX_AHEAD: Duration = Duration::from_secs(300);
/// The difference of clocks that is allowed at the beginning and the end of a JWT.
const LEEWAY: i64 = 60;

impl<'a> SignedRequest<'a> {
    /// The header, which must be there once.
    fn header(&self, name: &str) -> Result<&'a str, WebhookError> {
        let mut values = self.posted.headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok(),
            _ => None,
        }
        .ok_or_else(|| invalid(format!("the request has no header `{name}`")))
    }

    /// Fails unless `signature` is the HMAC of the joined `parts`.
    fn check_hmac<M: Mac + KeyInit>(
        &self,
        parts: &[&[u8]],
        signature: &[u8],
    ) -> Result<(), WebhookError> {
        check(is_hmac::<M>(self.secret, parts, signature))
    }

    /// Fails unless the instant, in seconds since 1970, is at most `max_age` ago.
    fn check_age(&self, seconds: &str) -> Result<(), WebhookError> {
        let Ok(seconds) = seconds.trim().parse::<i64>() else {
            return Err(invalid("the signed time is not a number of seconds"));
        };
        let age = seconds_of(self.posted.now).saturating_sub(seconds);
        let limit = |span: Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        if age > limit(self.max_age) {
            return Err(invalid(TOO_OLD));
        }
        if age < -limit(MAX_AHEAD) {
            return Err(invalid(IN_FUTURE));
        }
        Ok(())
    }
}

const TOO_OLD: &str = "the signature is too old";
const IN_FUTURE: &str = "the signed time is in the future: check the clock of this machine";

/// Whether `signature` is the HMAC of the joined `parts`.
fn is_hmac<M: Mac + KeyInit>(key: &str, parts: &[&[u8]], signature: &[u8]) -> bool {
    let mut mac = <M as KeyInit>::new_from_slice(key.as_bytes()).expect("HMAC takes any key");
    for part in parts {
        mac.update(part);
    }
    mac.verify_slice(signature).is_ok()
}

fn invalid(problem: impl Into<String>) -> WebhookError {
    WebhookError::Signature(problem.into())
}

fn wrong() -> WebhookError {
    invalid("the signature is wrong")
}

fn check(is_valid: bool) -> Result<(), WebhookError> {
    is_valid.then_some(()).ok_or_else(wrong)
}

fn equal(left: &[u8], right: &[u8]) -> bool {
    left.ct_eq(right).into()
}

fn from_base64(text: &str) -> Result<Vec<u8>, WebhookError> {
    STANDARD.decode(text.trim()).map_err(|_| wrong())
}

fn from_hex(text: &str) -> Result<Vec<u8>, WebhookError> {
    hex::decode(text.trim()).map_err(|_| wrong())
}

fn seconds_of(instant: Timestamp) -> i64 {
    instant.as_millis().div_euclid(1_000)
}

/// <https://www.twilio.com/docs/usage/webhooks/webhooks-security>
fn twilio(request: &SignedRequest<'_>) -> Result<(), WebhookError> {
    let posted = request.posted;
    let signature = from_base64(request.header("x-twilio-signature")?)?;
    let hash = request.query.iter().find(|(name, _)| name == "bodySHA256");
    if let Some((_, hash)) = hash.filter(|_| request.form.is_empty()) {
        let expected = hex::encode(sha256(posted.body));
        check(equal(hash.to_ascii_lowercase().as_bytes(), expected.as_bytes()))?;
    } else if request.form.is_empty() && !posted.body.is_empty() {
        return Err(invalid("the body is not signed"));
    }
    let mut pairs: Vec<&(String, String)> = request.form.iter().collect();
    pairs.sort_unstable();
    pairs.dedup();
    let form: String = pairs.into_iter().flat_map(|(name, value)| [name.as_str(), value]).collect();
    let settings = posted.headers.get("x-twilio-webhooks-signature-settings");
    let is_sha256 = settings
        .and_then(|value| value.to_str().ok())
        .is_some_and(|settings| settings.to_ascii_uppercase().contains("HMAC_SHA256"));
    let is_hmac = if is_sha256 { is_hmac::<Hmac<Sha256>> } else { is_hmac::<Hmac<Sha1>> };
    // The vendor's systems do not agree on whether the port belongs to the URL.
    let urls = [Some(posted.url.to_owned()), without_port(posted.url), with_port(posted.url)];
    check(urls.iter().flatten().any(|url| {
        let parts = [url.as_bytes(), form.as_bytes()];
        is_hmac(request.secret, &parts, &signature)
    }))
}

/// Scheme, host with port, and the rest of a URL.
fn authority(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Some((scheme, &rest[..end], &rest[end..]))
}

/// The place of the colon before the port.
fn port_at(host: &str) -> Option<usize> {
    let at = host.rfind(':')?;
    host[at + 1..].bytes().all(|byte| byte.is_ascii_digit()).then_some(at)
}

fn without_port(url: &str) -> Option<String> {
    let (scheme, host, rest) = authority(url)?;
    let host = &host[..port_at(host)?];
    Some(format!("{scheme}://{host}{rest}"))
}

fn with_port(url: &str) -> Option<String> {
    let (scheme, host, rest) = authority(url)?;
    let port = if scheme == "https" { 443 } else { 80 };
    port_at(host).is_none().then(|| format!("{scheme}://{host}:{port}{rest}"))
}

/// The parameters are in the query, in a form, or in a JSON object. The account's settings choose between MD5 with the
/// secret at the end, and HMAC; the length of the signature tells which hash function it is.
/// <https://developer.vonage.com/en/getting-started/concepts/signing-messages>
fn vonage(request: &SignedRequest<'_>) -> Result<(), WebhookError> {
    let mut pairs: Vec<(&str, String)> = match request.json.and_then(Json::as_object) {
        Some(object) => object
            .iter()
            .map(|(name, value)| match value.as_str() {
                Some(text) => (name.as_str(), text.to_owned()),
                None => (name.as_str(), value.to_string()),
            })
            .collect(),
        None => [request.form, request.query]
            .into_iter()
            .find(|pairs| !pairs.is_empty())
            .unwrap_or_default()
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect(),
    };
    pairs.sort_by_key(|(name, _)| *name);
    let value = |name: &str| pairs.iter().find(|(known, _)| *known == name);
    let (_, signature) = value("sig")
        .ok_or_else(|| invalid("the request has no `sig`: switch signing on at the vendor"))?;
    let signature = from_hex(signature)?;
    let mut signed = String::new();
    for (name, value) in pairs.iter().filter(|(name, _)| *name != "sig") {
        signed.extend(["&", name, "=", &value.replace(['&', '='], "_")]);
    }
    let parts = [signed.as_bytes()];
    match signature.len() {
        16 => {
            let hash = Md5::digest(format!("{signed}{}", request.secret));
            let is_hmac = is_hmac::<Hmac<Md5>>(request.secret, &parts, &signature);
            check(equal(&hash, &signature) | is_hmac)
        }
        20 => request.check_hmac::<Hmac<Sha1>>(&parts, &signature),
        32 => request.check_hmac::<Hmac<Sha256>>(&parts, &signature),
        64 => request.check_hmac::<Hmac<Sha512>>(&parts, &signature),
        _ => Err(wrong()),
    }?;
    match value("timestamp") {
        Some((_, seconds)) => request.check_age(seconds),
        None => Err(invalid("the signature has no time")),
    }
}

/// The claims of a JWT whose signature is right; it may only have these algorithms.
fn jwt_claims(
    request: &SignedRequest<'_>,
    token: &str,
    algorithms: &[&str],
) -> Result<Json, WebhookError> {
    let parts: Vec<&str> = token.trim().split('.').collect();
    let [head, body, signature] = parts.as_slice() else {
        return Err(wrong());
    };
    let bytes =
        |part: &str| URL_SAFE_NO_PAD.decode(part.trim_end_matches('=')).map_err(|_| wrong());
    let json = |part: &str| -> Result<Json, WebhookError> {
        serde_json::from_slice(&bytes(part)?).map_err(|_| wrong())
    };
    let header = json(head)?;
    let algorithm = header["alg"].as_str().unwrap_or_default();
    let signed: [&[u8]; 3] = [head.as_bytes(), b".", body.as_bytes()];
    match algorithm {
        allowed if !algorithms.contains(&allowed) => {
            Err(invalid("the signature has another algorithm than the vendor documents"))
        }
        "HS384" => request.check_hmac::<Hmac<Sha384>>(&signed, &bytes(signature)?),
        "HS512" => request.check_hmac::<Hmac<Sha512>>(&signed, &bytes(signature)?),
        _ => request.check_hmac::<Hmac<Sha256>>(&signed, &bytes(signature)?),
    }?;
    json(body)
}

/// Checks `nbf` and `exp` of a JWT, where it has them.
fn check_span(claims: &Json, now: Timestamp) -> Result<(), WebhookError> {
    let now = seconds_of(now);
    let seconds = |name: &str| claims[name].as_f64();
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact")]
    let (earliest, latest) = ((now - LEEWAY) as f64, (now + LEEWAY) as f64);
    if seconds("exp").is_some_and(|end| end < earliest) {
        return Err(invalid(TOO_OLD));
    }
    if seconds("nbf").is_some_and(|start| start > latest) {
        return Err(invalid(IN_FUTURE));
    }
    Ok(())
}

/// Checks a claim that has the SHA-256 of something in hex.
fn check_hash(claims: &Json, name: &str, of: &[u8]) -> Result<(), WebhookError> {
    let claimed = claims[name].as_str().unwrap_or_default().to_ascii_lowercase();
    if equal(claimed.as_bytes(), hex::encode(sha256(of)).as_bytes()) {
        return Ok(());
    }
    Err(invalid(match name {
        "url_hash" => "the signature is of another URL: check `public_url`",
        _ => "the signature is of another body",
    }))
}

/// <https://developer.vonage.com/en/getting-started/concepts/webhooks#decoding-signed-webhooks>
fn vonage_jwt(request: &SignedRequest<'_>) -> Result<(), WebhookError> {
    let posted = request.posted;
    let authorization = posted.headers.get(AUTHORIZATION);
    let (word, token) = authorization
        .ok_or(WebhookError::Unsigned)?
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .ok_or_else(wrong)?;
    check(word.eq_ignore_ascii_case("bearer"))?;
    let claims = jwt_claims(request, token, &["HS256"])?;
    check_span(&claims, posted.now)?;
    request.check_age(&claims["iat"].to_string())?;
    check_hash(&claims, "payload_hash", posted.body)
}

/// <https://developers.messagebird.com/api/#verifying-http-requests>
fn messagebird(request: &SignedRequest<'_>) -> Result<(), WebhookError> {
    let posted = request.posted;
    let token = request.header("messagebird-signature-jwt")?;
    let claims = jwt_claims(request, token, &["HS256", "HS384", "HS512"])?;
    let has_span = claims["nbf"].is_number() && claims["exp"].is_number();
    check(claims["iss"] == "MessageBird" && has_span)?;
    check_span(&claims, posted.now)?;
    check_hash(&claims, "url_hash", posted.url.as_bytes())?;
    match (posted.body, claims["payload_hash"].as_str()) {
        ([], None) => Ok(()),
        ([], Some(_)) => Err(invalid("the signature is of a body")),
        (body, _) => check_hash(&claims, "payload_hash", body),
    }
}

/// <https://developers.telnyx.com/docs/messaging/messages/receiving-webhooks>
fn telnyx(request: &SignedRequest<'_>) -> Result<(), WebhookError> {
    let signature = from_base64(request.header("telnyx-signature-ed25519")?)?;
    let time = request.header("telnyx-timestamp")?;
    let key =
        STANDARD.decode(request.secret.trim()).ok().filter(|key| key.len() == 32).ok_or_else(
            || invalid("the secret of the webhook is not a public key of 32 bytes in base64"),
        )?;
    let signed = [time.as_bytes(), b"|", request.posted.body].concat();
    let is_valid = UnparsedPublicKey::new(&ED25519, key).verify(&signed, &signature);
    check(is_valid.is_ok())?;
    request.check_age(time)
}

/// Pages of the vendor name three headers, so any one that is right counts: version 3 with the token of the account,
/// version 3 with the token of the main account, and version 2, which signs the URL without the parameters, unless
/// only version 3 is allowed.
/// <https://www.plivo.com/docs/messaging/concepts/signature-validation>
fn plivo(request: &SignedRequest<'_>, only_version_3: bool) -> Result<(), WebhookError> {
    let posted = request.posted;
    let (before, _) = posted.url.split_once('?').unwrap_or((posted.url, ""));
    let query = sorted(request.query, "=", "&");
    let mut whole = before.to_owned();
    if !query.is_empty() || !request.form.is_empty() {
        whole.extend(["?", &query]);
    }
    if !request.form.is_empty() {
        let dot = if query.is_empty() { "" } else { "." };
        whole.extend([dot, &sorted(request.form, "", "")]);
    }
    let is_signed_body = !request.form.is_empty() || posted.body.is_empty();
    let mut has_header = false;
    for (name, version) in [("", 3), ("-ma", 3), ("", 2), ("-ma", 2)] {
        let is_version_3 = version == 3;
        let signatures = request.header(&format!("x-plivo-signature{name}-v{version}"));
        let nonce = request.header(&format!("x-plivo-signature-v{version}-nonce"));
        let (Ok(signatures), Ok(nonce)) = (signatures, nonce) else {
            continue;
        };
        if only_version_3 && !is_version_3 {
            continue;
        }
        has_header = true;
        let signed: [&[u8]; 3] = if is_version_3 {
            [whole.as_bytes(), b".", nonce.as_bytes()]
        } else {
            [before.as_bytes(), b"", nonce.as_bytes()]
        };
        let is_valid = |signature: &str| {
            let signature = STANDARD.decode(signature.trim()).unwrap_or_default();
            is_hmac::<Hmac<Sha256>>(request.secret, &signed, &signature)
        };
        if (!is_version_3 || is_signed_body) && signatures.split(',').any(is_valid) {
            return Ok(());
        }
    }
    if has_header {
        return Err(wrong());
    }
    Err(invalid("the request has no header `x-plivo-signature-v3`"))
}

/// Names and values, sorted and joined.
fn sorted(pairs: &[(String, String)], between: &str, separator: &str) -> String {
    let mut pairs: Vec<&(String, String)> = pairs.iter().collect();
    pairs.sort_unstable();
    let joined: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{name}{between}{value}")).collect();
    joined.join(separator)
}

/// <https://developers.sinch.com/docs/sms/api-reference/sms/webhooks/>
fn sinch(request: &SignedRequest<'_>) -> Result<(), WebhookError> {
    let signature = from_base64(request.header("x-sinch-webhook-signature")?)?;
    let nonce = request.header("x-sinch-webhook-signature-nonce")?;
    let time = request.header("x-sinch-webhook-signature-timestamp")?;
    let body = request.posted.body;
    let signed = [body, b".", nonce.as_bytes(), b".", time.as_bytes()];
    request.check_hmac::<Hmac<Sha256>>(&signed, &signature)?;
    request.check_age(time)
}

/// <https://docs.sms-gate.app/features/webhooks/>
fn sms_gate(request: &SignedRequest<'_>) -> Result<(), WebhookError> {
    let signature = from_hex(request.header("x-signature")?)?;
    let time = request.header("x-timestamp")?;
    let signed = [request.posted.body, time.as_bytes()];
    request.check_hmac::<Hmac<Sha256>>(&signed, &signature)?;
    request.check_age(time)
}

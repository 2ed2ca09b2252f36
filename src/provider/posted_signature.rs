//! The signatures of requests that vendors post, tested against their documentation and their own libraries. All
//! comparisons with what a secret makes take the same time for every wrong signature.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::Value as Json;
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;

use super::signing::sha256;
use super::webhook::{PostedRequest, SignatureScheme, WebhookError};
use crate::sms::Timestamp;

/// A vendor's clock may be ahead of ours by this.
const MAX_AHEAD: Duration = Duration::from_secs(300);
/// The difference of clocks that is allowed at the beginning and the end of a JWT.
const LEEWAY: i64 = 60;

/// A request, and its query and form as pairs.
pub(super) struct SignedRequest<'a> {
    pub(super) posted: &'a PostedRequest<'a>,
    pub(super) query: &'a [(String, String)],
    /// Empty where the body is not a form.
    pub(super) form: &'a [(String, String)],
    /// The body, where it is JSON.
    pub(super) json: Option<&'a Json>,
}

/// Checks the vendor's signature. `max_age` is how old a signed time may be.
pub(super) fn verify(
    scheme: SignatureScheme,
    secret: &str,
    max_age: Duration,
    request: &SignedRequest<'_>,
) -> Result<(), WebhookError> {
    match scheme {
        SignatureScheme::Twilio => twilio(secret, request),
        SignatureScheme::Vonage => vonage(secret, max_age, request),
        SignatureScheme::VonageJwt => vonage_jwt(secret, max_age, request.posted),
        SignatureScheme::MessageBird => messagebird(secret, request.posted),
        SignatureScheme::Telnyx => telnyx(secret, max_age, request.posted),
        SignatureScheme::Plivo => plivo(secret, request, false),
        SignatureScheme::PlivoV3 => plivo(secret, request, true),
        SignatureScheme::Sinch => sinch(secret, max_age, request.posted),
        SignatureScheme::SmsGate => sms_gate(secret, max_age, request.posted),
    }
}

/// The hash function of an HMAC.
#[derive(Clone, Copy)]
enum HashKind {
    Md5,
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

/// Whether `signature` is the HMAC of the joined `parts`.
fn is_hmac(kind: HashKind, key: &[u8], parts: &[&[u8]], signature: &[u8]) -> bool {
    macro_rules! verified {
        ($hash:ty) => {{
            let mut mac =
                Hmac::<$hash>::new_from_slice(key).expect("HMAC takes keys of any length");
            for part in parts {
                mac.update(part);
            }
            mac.verify_slice(signature).is_ok()
        }};
    }
    match kind {
        HashKind::Md5 => verified!(Md5),
        HashKind::Sha1 => verified!(Sha1),
        HashKind::Sha256 => verified!(Sha256),
        HashKind::Sha384 => verified!(Sha384),
        HashKind::Sha512 => verified!(Sha512),
    }
}

fn wrong() -> WebhookError {
    WebhookError::Signature("the signature is wrong".to_owned())
}

fn checked(is_valid: bool) -> Result<(), WebhookError> {
    is_valid.then_some(()).ok_or_else(wrong)
}

/// The header, which must be there once.
fn header<'a>(posted: &PostedRequest<'a>, name: &str) -> Result<&'a str, WebhookError> {
    let mut values = posted.headers.get_all(name).iter();
    let value = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    };
    value.ok_or_else(|| WebhookError::Signature(format!("the request has no header `{name}`")))
}

fn from_base64(text: &str) -> Result<Vec<u8>, WebhookError> {
    STANDARD.decode(text.trim()).map_err(|_| wrong())
}

/// Fails unless the instant, in seconds since 1970, is at most `max_age` ago.
fn check_age(seconds: &str, now: Timestamp, max_age: Duration) -> Result<(), WebhookError> {
    let problem = |problem: &str| Err(WebhookError::Signature(problem.to_owned()));
    let Ok(seconds) = seconds.trim().parse::<i64>() else {
        return problem("the signed time is not a number of seconds");
    };
    let age = now.as_millis().div_euclid(1_000).saturating_sub(seconds);
    let limit = |span: Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    if age > limit(max_age) {
        return problem("the signature is too old");
    }
    if age < -limit(MAX_AHEAD) {
        return problem("the signed time is in the future: check the clock of this machine");
    }
    Ok(())
}

/// <https://www.twilio.com/docs/usage/webhooks/webhooks-security>
fn twilio(secret: &str, request: &SignedRequest<'_>) -> Result<(), WebhookError> {
    let posted = request.posted;
    let signature = from_base64(header(posted, "x-twilio-signature")?)?;
    let settings = posted.headers.get("x-twilio-webhooks-signature-settings");
    let settings = settings.and_then(|value| value.to_str().ok()).unwrap_or("");
    let kind = if settings.to_ascii_uppercase().contains("HMAC_SHA256") {
        HashKind::Sha256
    } else {
        HashKind::Sha1
    };
    let hash = request.query.iter().find(|(name, _)| name == "bodySHA256");
    if let Some((_, hash)) = hash.filter(|_| request.form.is_empty()) {
        let expected = hex::encode(sha256(posted.body));
        checked(equal(
            hash.to_ascii_lowercase().as_bytes(),
            expected.as_bytes(),
        ))?;
    } else if request.form.is_empty() && !posted.body.is_empty() {
        return Err(WebhookError::Signature("the body is not signed".to_owned()));
    }
    let mut pairs: Vec<&(String, String)> = request.form.iter().collect();
    pairs.sort_unstable();
    pairs.dedup();
    let form: String = pairs
        .into_iter()
        .flat_map(|(name, value)| [name.as_str(), value])
        .collect();
    // The vendor's systems do not agree on whether the port belongs to the URL.
    let urls = [
        Some(posted.url.to_owned()),
        without_port(posted.url),
        with_port(posted.url),
    ];
    let mut urls = urls.into_iter().flatten();
    checked(urls.any(|url| {
        is_hmac(
            kind,
            secret.as_bytes(),
            &[url.as_bytes(), form.as_bytes()],
            &signature,
        )
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
    host[at + 1..]
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(at)
}

fn without_port(url: &str) -> Option<String> {
    let (scheme, host, rest) = authority(url)?;
    let host = &host[..port_at(host)?];
    Some(format!("{scheme}://{host}{rest}"))
}

fn with_port(url: &str) -> Option<String> {
    let (scheme, host, rest) = authority(url)?;
    let port = if scheme == "https" { 443 } else { 80 };
    port_at(host)
        .is_none()
        .then(|| format!("{scheme}://{host}:{port}{rest}"))
}

fn equal(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// The parameters are in the query, in a form, or in a JSON object. The account's settings choose between MD5 with the
/// secret at the end, and HMAC; the length of the signature tells which hash function it is.
/// <https://developer.vonage.com/en/getting-started/concepts/signing-messages>
fn vonage(
    secret: &str,
    max_age: Duration,
    request: &SignedRequest<'_>,
) -> Result<(), WebhookError> {
    let text = |value: &Json| {
        let text = value.as_str();
        text.map_or_else(|| value.to_string(), str::to_owned)
    };
    let mut pairs: Vec<(&str, String)> = Vec::new();
    if let Some(object) = request.json.and_then(Json::as_object) {
        let object = object.iter();
        pairs.extend(object.map(|(name, value)| (name.as_str(), text(value))));
    } else {
        let is_form = !request.form.is_empty();
        let given = if is_form { request.form } else { request.query };
        let given = given.iter();
        pairs.extend(given.map(|(name, value)| (name.as_str(), value.clone())));
    }
    pairs.sort_by(|one, other| one.0.cmp(other.0));
    let value = |name: &str| pairs.iter().find(|(known, _)| *known == name);
    let Some((_, signature)) = value("sig") else {
        return Err(WebhookError::Signature(
            "the request has no `sig`: switch signing on at the vendor".to_owned(),
        ));
    };
    let signature = hex::decode(signature.trim()).map_err(|_| wrong())?;
    let mut signed = String::new();
    for (name, value) in pairs.iter().filter(|(name, _)| *name != "sig") {
        signed.extend(["&", name, "=", &value.replace(['&', '='], "_")]);
    }
    let hmac = |kind| is_hmac(kind, secret.as_bytes(), &[signed.as_bytes()], &signature);
    checked(match signature.len() {
        16 => {
            let hash = Md5::digest(format!("{signed}{secret}"));
            equal(&hash, &signature) | hmac(HashKind::Md5)
        }
        20 => hmac(HashKind::Sha1),
        32 => hmac(HashKind::Sha256),
        64 => hmac(HashKind::Sha512),
        _ => false,
    })?;
    match value("timestamp") {
        Some((_, seconds)) => check_age(seconds, request.posted.now, max_age),
        None => Err(WebhookError::Signature(
            "the signature has no time".to_owned(),
        )),
    }
}

/// The claims of a JWT whose signature is right.
fn jwt_claims(
    token: &str,
    secret: &str,
    allowed: &[(&str, HashKind)],
) -> Result<Json, WebhookError> {
    let mut parts = token.trim().split('.');
    let (Some(head), Some(body), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(wrong());
    };
    let bytes = |part: &str| {
        let part = part.trim_end_matches('=');
        URL_SAFE_NO_PAD.decode(part).map_err(|_| wrong())
    };
    let json = |part: &str| -> Result<Json, WebhookError> {
        serde_json::from_slice(&bytes(part)?).map_err(|_| wrong())
    };
    let header = json(head)?;
    let algorithm = header["alg"].as_str().unwrap_or_default();
    let Some((_, kind)) = allowed.iter().find(|(name, _)| *name == algorithm) else {
        return Err(WebhookError::Signature(
            "the signature has another algorithm than the vendor documents".to_owned(),
        ));
    };
    let signed: [&[u8]; 3] = [head.as_bytes(), b".", body.as_bytes()];
    checked(is_hmac(
        *kind,
        secret.as_bytes(),
        &signed,
        &bytes(signature)?,
    ))?;
    json(body)
}

/// Checks `nbf` and `exp` of a JWT, where it has them.
fn check_span(claims: &Json, now: Timestamp) -> Result<(), WebhookError> {
    let now = now.as_millis().div_euclid(1_000);
    let seconds = |name: &str| claims[name].as_f64();
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact")]
    let (earliest, latest) = ((now - LEEWAY) as f64, (now + LEEWAY) as f64);
    if seconds("exp").is_some_and(|end| end < earliest) {
        return Err(WebhookError::Signature(
            "the signature is too old".to_owned(),
        ));
    }
    if seconds("nbf").is_some_and(|start| start > latest) {
        let problem = "the signed time is in the future: check the clock of this machine";
        return Err(WebhookError::Signature(problem.to_owned()));
    }
    Ok(())
}

/// Checks a claim that has the SHA-256 of something in hex.
fn check_hash(claims: &Json, name: &str, of: &[u8]) -> Result<(), WebhookError> {
    let claimed = claims[name]
        .as_str()
        .unwrap_or_default()
        .to_ascii_lowercase();
    if equal(claimed.as_bytes(), hex::encode(sha256(of)).as_bytes()) {
        return Ok(());
    }
    Err(WebhookError::Signature(match name {
        "url_hash" => "the signature is of another URL: check `public_url`".to_owned(),
        _ => "the signature is of another body".to_owned(),
    }))
}

/// <https://developer.vonage.com/en/getting-started/concepts/webhooks#decoding-signed-webhooks>
fn vonage_jwt(
    secret: &str,
    max_age: Duration,
    posted: &PostedRequest<'_>,
) -> Result<(), WebhookError> {
    let authorization = posted.headers.get(http::header::AUTHORIZATION);
    let Some(authorization) = authorization else {
        return Err(WebhookError::Unsigned);
    };
    let authorization = authorization.to_str().map_err(|_| wrong())?;
    let (word, token) = authorization.split_once(' ').ok_or_else(wrong)?;
    checked(word.eq_ignore_ascii_case("bearer"))?;
    let claims = jwt_claims(token, secret, &[("HS256", HashKind::Sha256)])?;
    check_span(&claims, posted.now)?;
    check_age(&claims["iat"].to_string(), posted.now, max_age)?;
    check_hash(&claims, "payload_hash", posted.body)
}

/// <https://developers.messagebird.com/api/#verifying-http-requests>
fn messagebird(secret: &str, posted: &PostedRequest<'_>) -> Result<(), WebhookError> {
    let allowed = [
        ("HS256", HashKind::Sha256),
        ("HS384", HashKind::Sha384),
        ("HS512", HashKind::Sha512),
    ];
    let token = header(posted, "messagebird-signature-jwt")?;
    let claims = jwt_claims(token, secret, &allowed)?;
    let has_span = claims["nbf"].is_number() && claims["exp"].is_number();
    checked(claims["iss"] == "MessageBird" && has_span)?;
    check_span(&claims, posted.now)?;
    check_hash(&claims, "url_hash", posted.url.as_bytes())?;
    match (posted.body, claims["payload_hash"].as_str()) {
        ([], None) => Ok(()),
        ([], Some(_)) => Err(WebhookError::Signature(
            "the signature is of a body".to_owned(),
        )),
        (body, _) => check_hash(&claims, "payload_hash", body),
    }
}

/// <https://developers.telnyx.com/docs/messaging/messages/receiving-webhooks>
fn telnyx(key: &str, max_age: Duration, posted: &PostedRequest<'_>) -> Result<(), WebhookError> {
    let signature = from_base64(header(posted, "telnyx-signature-ed25519")?)?;
    let time = header(posted, "telnyx-timestamp")?;
    let key = STANDARD.decode(key.trim());
    let key = key.ok().filter(|key| key.len() == 32).ok_or_else(|| {
        let problem = "the secret of the webhook is not a public key of 32 bytes in base64";
        WebhookError::Signature(problem.to_owned())
    })?;
    let signed = [time.as_bytes(), b"|", posted.body].concat();
    let is_valid = UnparsedPublicKey::new(&ED25519, key).verify(&signed, &signature);
    checked(is_valid.is_ok())?;
    check_age(time, posted.now, max_age)
}

/// Pages of the vendor name three headers, so any one that is right counts: version 3 with the token of the account,
/// version 3 with the token of the main account, and version 2, which signs the URL without the parameters, unless
/// only version 3 is allowed.
/// <https://www.plivo.com/docs/messaging/concepts/signature-validation>
fn plivo(
    secret: &str,
    request: &SignedRequest<'_>,
    only_version_3: bool,
) -> Result<(), WebhookError> {
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
    for (signature, nonce, is_version_3) in [
        ("x-plivo-signature-v3", "x-plivo-signature-v3-nonce", true),
        (
            "x-plivo-signature-ma-v3",
            "x-plivo-signature-v3-nonce",
            true,
        ),
        ("x-plivo-signature-v2", "x-plivo-signature-v2-nonce", false),
        (
            "x-plivo-signature-ma-v2",
            "x-plivo-signature-v2-nonce",
            false,
        ),
    ] {
        let (Ok(signatures), Ok(nonce)) = (header(posted, signature), header(posted, nonce)) else {
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
            is_hmac(HashKind::Sha256, secret.as_bytes(), &signed, &signature)
        };
        if (!is_version_3 || is_signed_body) && signatures.split(',').any(is_valid) {
            return Ok(());
        }
    }
    if has_header {
        return Err(wrong());
    }
    let problem = "the request has no header `x-plivo-signature-v3`";
    Err(WebhookError::Signature(problem.to_owned()))
}

/// Names and values, sorted and joined.
fn sorted(pairs: &[(String, String)], between: &str, separator: &str) -> String {
    let mut pairs: Vec<&(String, String)> = pairs.iter().collect();
    pairs.sort_unstable();
    let pairs = pairs.into_iter();
    let joined: Vec<String> = pairs
        .map(|(name, value)| format!("{name}{between}{value}"))
        .collect();
    joined.join(separator)
}

/// <https://developers.sinch.com/docs/sms/api-reference/sms/webhooks/>
fn sinch(secret: &str, max_age: Duration, posted: &PostedRequest<'_>) -> Result<(), WebhookError> {
    let signature = from_base64(header(posted, "x-sinch-webhook-signature")?)?;
    let nonce = header(posted, "x-sinch-webhook-signature-nonce")?;
    let time = header(posted, "x-sinch-webhook-signature-timestamp")?;
    let signed = [posted.body, b".", nonce.as_bytes(), b".", time.as_bytes()];
    checked(is_hmac(
        HashKind::Sha256,
        secret.as_bytes(),
        &signed,
        &signature,
    ))?;
    check_age(time, posted.now, max_age)
}

/// <https://docs.sms-gate.app/features/webhooks/>
fn sms_gate(key: &str, max_age: Duration, posted: &PostedRequest<'_>) -> Result<(), WebhookError> {
    let signature = hex::decode(header(posted, "x-signature")?.trim()).map_err(|_| wrong())?;
    let time = header(posted, "x-timestamp")?;
    let signed = [posted.body, time.as_bytes()];
    checked(is_hmac(
        HashKind::Sha256,
        key.as_bytes(),
        &signed,
        &signature,
    ))?;
    check_age(time, posted.now, max_age)
}

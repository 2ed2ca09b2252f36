//! The two SMS APIs of AWS. `aws-sms` is End User Messaging (`SendTextMessage` of `pinpoint-sms-voice-v2`), `aws-sns`
//! is SNS (`Publish` to a phone, a form answered in XML). Neither has status lookups.
//! <https://docs.aws.amazon.com/pinpoint/latest/apireference_smsvoicev2/API_SendTextMessage.html>
//! <https://docs.aws.amazon.com/sns/latest/api/API_Publish.html>

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{Method, Request};
use quick_xml::Reader;
use quick_xml::events::Event;
use serde::Deserialize;
use serde_json::json;
use url::form_urlencoded::Serializer;

use super::{Vendor, post_form, request};
use crate::provider::capabilities::Reference;
use crate::provider::config::{ProviderConfig, SharedSettings};
use crate::provider::response::{ResponseView, accepted};
use crate::provider::section::{ProviderError, Section};
use crate::provider::{Adapter, Message, NewAdapter, RequestContext, RequestResult, account_error};
use crate::sms::{Outcome, Timestamp};

/// The names of the services in URLs and signatures.
const SMS: &str = "sms-voice";
const SNS: &str = "sns";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SmsSettings {
    region: String,
    message_type: Option<String>,
    configuration_set: Option<String>,
    max_price: Option<String>,
}

type AwsSms = Vendor<SmsSettings>;

pub(in crate::provider) fn new_sms(mut section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    let settings: SmsSettings = section.rest()?;
    let mut config = read_config(&section, shared, SMS, &settings.region)?;
    config.capabilities.reference = Reference::Echoed;
    Ok(Box::new(AwsSms { config, settings }))
}

impl Adapter for AwsSms {
    fn request(&self, messages: &[Message], context: &RequestContext) -> RequestResult {
        let message = &messages[0];
        let mut body = json!({
            "DestinationPhoneNumber": message.phone.as_str(),
            "MessageBody": message.content,
            "Context": { "reference": message.reference },
        });
        let settings = &self.settings;
        for (key, value) in [
            ("OriginationIdentity", self.config.sender(message)),
            ("MessageType", settings.message_type.as_deref()),
            (
                "ConfigurationSetName",
                settings.configuration_set.as_deref(),
            ),
            ("MaxPrice", settings.max_price.as_deref()),
        ] {
            if let Some(value) = value {
                body[key] = value.into();
            }
        }
        let headers = [
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-target", "PinpointSMSVoiceV2.SendTextMessage"),
        ];
        let request = request(Method::POST, &self.config.url, headers, body.to_string())?;
        signed(&self.config, &settings.region, SMS, context.now, request)
    }

    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome> {
        let outcome = match response.scalar("/MessageId") {
            Some(id) if response.status.is_success() => accepted(&id, None, None),
            _ if response.status.is_success() => response.unknown(" without a `MessageId`"),
            _ => {
                let words = response.scalar("/message");
                let words = words.or_else(|| response.scalar("/Message"));
                let code = sms_code(&self.config, response);
                response.failed(&self.config.codes, code.as_deref(), words)
            }
        };
        outcome.of_all(messages.len())
    }
}

/// The reason of the exception, where the table has it, else the exception, from the body or from a header, without
/// the namespace before it and the URL after it.
fn sms_code(config: &ProviderConfig, response: &ResponseView<'_>) -> Option<String> {
    let reason = response.scalar("/Reason");
    let reason = reason.filter(|reason| config.codes.meaning(reason).is_some());
    reason.or_else(|| {
        let header = || response.headers.get("x-amzn-errortype")?.to_str().ok();
        let exception = response.scalar("/__type");
        let exception = exception.as_deref().or_else(header)?;
        let exception = exception.split(':').next()?.rsplit('#').next()?;
        Some(exception.trim().to_owned())
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SnsSettings {
    region: String,
    sms_type: Option<String>,
    max_price: Option<String>,
}

type AwsSns = Vendor<SnsSettings>;

pub(in crate::provider) fn new_sns(mut section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    let settings: SnsSettings = section.rest()?;
    let config = read_config(&section, shared, SNS, &settings.region)?;
    Ok(Box::new(AwsSns { config, settings }))
}

impl Adapter for AwsSns {
    fn request(&self, messages: &[Message], context: &RequestContext) -> RequestResult {
        let message = &messages[0];
        let settings = &self.settings;
        let mut body = Serializer::new(String::new());
        body.append_pair("Action", "Publish")
            .append_pair("Version", "2010-03-31")
            .append_pair("PhoneNumber", message.phone.as_str())
            .append_pair("Message", &message.content);
        let attributes = [
            ("SMSType", "String", settings.sms_type.as_deref()),
            ("SenderID", "String", self.config.sender(message)),
            ("MaxPrice", "Number", settings.max_price.as_deref()),
        ];
        let attributes = attributes.into_iter();
        let set = attributes.filter_map(|(name, kind, value)| Some((name, kind, value?)));
        for (index, (name, kind, value)) in (1..).zip(set) {
            let entry = format!("MessageAttributes.entry.{index}");
            body.append_pair(&format!("{entry}.Name"), &format!("AWS.SNS.SMS.{name}"))
                .append_pair(&format!("{entry}.Value.DataType"), kind)
                .append_pair(&format!("{entry}.Value.StringValue"), value);
        }
        let request = post_form(&self.config.url, "", body.finish())?;
        signed(&self.config, &settings.region, SNS, context.now, request)
    }

    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome> {
        let codes = &self.config.codes;
        let outcome = match parse_xml(&response.text()) {
            Some(SnsResponse { id: Some(id), .. }) if response.status.is_success() => {
                accepted(&id, None, None)
            }
            _ if response.status.is_success() => response.unknown(" without a `MessageId`"),
            Some(SnsResponse { code, words, .. }) => {
                // This code has two meanings, and only the words tell them apart.
                let is_phone = words.as_ref().is_some_and(|words| {
                    let words = words.trim_start_matches("Invalid parameter: ");
                    words.starts_with("PhoneNumber")
                });
                let code = match code.as_deref() {
                    Some("InvalidParameter") if is_phone => Some("InvalidParameter PhoneNumber"),
                    code => code,
                };
                response.failed(codes, code, words)
            }
            None => response.failed(codes, None, None),
        };
        outcome.of_all(messages.len())
    }
}

#[derive(Default)]
struct SnsResponse {
    id: Option<String>,
    code: Option<String>,
    words: Option<String>,
}

/// `None` where the text is not XML.
fn parse_xml(text: &str) -> Option<SnsResponse> {
    const MAX_DEPTH: usize = 16;
    let mut reader = Reader::from_str(text);
    let mut response = SnsResponse::default();
    let mut path: Vec<String> = Vec::new();
    loop {
        match reader.read_event().ok()? {
            Event::Eof => return path.is_empty().then_some(response),
            Event::Start(_) if path.len() > MAX_DEPTH => return None,
            Event::Start(start) => {
                path.push(String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
            }
            Event::End(_) => drop(path.pop()),
            Event::Text(text) => {
                let text = text.decode().ok()?.trim().to_owned();
                let place: Vec<&str> = path.iter().rev().take(2).map(String::as_str).collect();
                let field = match place.as_slice() {
                    ["MessageId", "PublishResult"] => &mut response.id,
                    ["Code", "Error"] => &mut response.code,
                    ["Message", "Error"] => &mut response.words,
                    _ => continue,
                };
                if !text.is_empty() {
                    field.get_or_insert(text);
                }
            }
            _ => {}
        }
    }
}

/// The default URL is that of the region.
fn read_config(
    section: &Section<'_>,
    shared: SharedSettings,
    service: &str,
    region: &str,
) -> Result<ProviderConfig, ProviderError> {
    let top = if region.starts_with("cn-") { ".cn" } else { "" };
    let url = format!("https://{service}.{region}.amazonaws.com{top}/");
    let url = shared.url.is_none().then(|| section.url("region", &url));
    let mut config = shared.into_config(section, url.transpose()?)?;
    let is_temporary = config.secret("access_key_id").starts_with("ASIA");
    if is_temporary && config.secrets.get("session_token").is_none() {
        let warning = "an access key `ASIA…` needs secret `session_token` too";
        config.warnings.push(warning.to_owned());
    }
    Ok(config)
}

/// Signs the request with version 4; all headers are signed.
fn signed(
    config: &ProviderConfig,
    region: &str,
    service: &str,
    now: Timestamp,
    request: Request<Bytes>,
) -> RequestResult {
    try_signed(config, region, service, now, request)
        .map_err(|error| account_error(format!("cannot sign the request: {error}")))
}

fn try_signed(
    config: &ProviderConfig,
    region: &str,
    service: &str,
    now: Timestamp,
    mut request: Request<Bytes>,
) -> Result<Request<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let identity = Credentials::new(
        config.secret("access_key_id"),
        config.secret("secret_access_key"),
        config.secrets.get("session_token").map(str::to_owned),
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
    instructions.apply_to_request_http1x(&mut request);
    Ok(request)
}

#[cfg(test)]
mod sms_tests;
#[cfg(test)]
mod sns_tests;

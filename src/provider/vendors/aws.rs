//! The two SMS APIs of AWS. `aws-sms` is End User Messaging (`SendTextMessage` of `pinpoint-sms-voice-v2`), `aws-sns`
//! is SNS (`Publish` to a phone, a form answered in XML). Neither has status lookups.
//! <https://docs.aws.amazon.com/pinpoint/latest/apireference_smsvoicev2/API_SendTextMessage.html>
//! <https://docs.aws.amazon.com/sns/latest/api/API_Publish.html>

use http::Method;
use quick_xml::Reader;
use quick_xml::events::Event;
use serde::Deserialize;
use serde_json::json;
use smsq_message::sms::{Outcome, Timestamp};
use url::form_urlencoded::Serializer;

use super::{FORM, Vendor, request};
use crate::capabilities::Reference;
use crate::config::section::{ProviderError, Section};
use crate::config::{ProviderConfig, SharedSettings};
use crate::response::{ResponseView, accepted};
use crate::signing::{AMZ_DATE, Keys, sigv4};
use crate::times::utc;
use crate::{Adapter, Message, NewAdapter, RequestContext, RequestResult};

/// The names of the services in URLs and signatures.
const SMS: &str = "sms-voice";
const SNS: &str = "sns";

/// The country code of India, whose numbers need more parameters.
const INDIA: &str = "+91";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SmsSettings {
    region: String,
    message_type: Option<String>,
    configuration_set: Option<String>,
    max_price: Option<String>,
    /// The ids of the entity and of the template at DLT, which India demands.
    dlt_entity_id: Option<String>,
    dlt_template_id: Option<String>,
}

type AwsSms = Vendor<SmsSettings>;

pub(crate) fn new_sms(mut section: Section<'_>, shared: SharedSettings) -> NewAdapter {
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
            ("ConfigurationSetName", settings.configuration_set.as_deref()),
            ("MaxPrice", settings.max_price.as_deref()),
        ] {
            if let Some(value) = value {
                body[key] = value.into();
            }
        }
        if message.phone.as_str().starts_with(INDIA) {
            for (key, value) in [
                ("IN_ENTITY_ID", &settings.dlt_entity_id),
                ("IN_TEMPLATE_ID", &settings.dlt_template_id),
            ] {
                if let Some(value) = value {
                    body["DestinationCountryParameters"][key] = value.as_str().into();
                }
            }
        }
        let headers = [
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-target", "PinpointSMSVoiceV2.SendTextMessage"),
        ];
        let scope = [settings.region.as_str(), SMS];
        signed_post(&self.config, scope, context.now, &headers, body.to_string())
    }

    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome> {
        let outcome = match response.scalar("/MessageId") {
            Some(id) if response.status.is_success() => accepted(&id, None, None),
            _ if response.status.is_success() => response.unknown(" without a `MessageId`"),
            _ => {
                let words = response.scalar("/message").or_else(|| response.scalar("/Message"));
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

pub(crate) fn new_sns(mut section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    let settings: SnsSettings = section.rest()?;
    let mut config = read_config(&section, shared, SNS, &settings.region)?;
    // What became of messages is only in the logs of the vendor.
    config.capabilities.receipts = false;
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
        let set = [
            ("SMSType", "String", settings.sms_type.as_deref()),
            ("SenderID", "String", self.config.sender(message)),
            ("MaxPrice", "Number", settings.max_price.as_deref()),
        ]
        .into_iter()
        .filter_map(|(name, kind, value)| Some((name, kind, value?)));
        for (index, (name, kind, value)) in (1..).zip(set) {
            let entry = format!("MessageAttributes.entry.{index}");
            body.append_pair(&format!("{entry}.Name"), &format!("AWS.SNS.SMS.{name}"))
                .append_pair(&format!("{entry}.Value.DataType"), kind)
                .append_pair(&format!("{entry}.Value.StringValue"), value);
        }
        let scope = [settings.region.as_str(), SNS];
        let headers = [("content-type", FORM)];
        signed_post(&self.config, scope, context.now, &headers, body.finish())
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

/// A `POST` with a version 4 signature; all headers are signed. `headers` are in lower case.
fn signed_post(
    config: &ProviderConfig,
    scope: [&str; 2],
    now: Timestamp,
    headers: &[(&str, &str)],
    body: String,
) -> RequestResult {
    let date = utc(now, AMZ_DATE);
    let mut headers = headers.to_vec();
    headers.extend([("host", config.host()), ("x-amz-date", &date)]);
    let token = config.secrets.get("session_token");
    headers.extend(token.map(|token| ("x-amz-security-token", token)));
    headers.sort_unstable();
    let keys =
        Keys { id: config.secret("access_key_id"), secret: config.secret("secret_access_key") };
    let authorization = sigv4(keys, scope, now, &config.url, &headers, body.as_bytes());
    headers.push(("authorization", &authorization));
    // The client sets it.
    headers.retain(|(name, _)| *name != "host");
    request(Method::POST, &config.url, headers, body)
}

#[cfg(test)]
mod sms_tests;
#[cfg(test)]
mod sns_tests;

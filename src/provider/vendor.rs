//! The vendors that need more than a stanza: signatures, batches, look-ups, answers with a result for every
//! recipient. Each has a file of its own for what is its own; what they share stands here.

use std::fmt;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Response};
use serde_json::Value;
use url::Url;

use super::answer::Answer;
pub(super) use super::calls::{Calls, Common};
use super::capabilities::{Answers, Attempt, Capabilities, Lookup, LookupResult, Sought};
use super::codes::Codes;
use super::forms::Forms;
use super::generic::not_one;
use super::parameters::{Order, Parameters};
use super::secrets::Secrets;
use super::stanza::{Connection, Stanza};
use super::{
    Message, ProviderError, RequestContext, aliyun, aws, aws_sms, aws_sns, huawei, infobip, kannel,
    sms_gate, telnyx, tencent, twilio, vonage, yunpian,
};
use crate::sms::{Class, Failure, Outcome, Timestamp};

/// The words of `kind`, one for each file.
pub(super) const KINDS: [&str; 12] = [
    "aliyun", "aws-sms", "aws-sns", "huawei", "infobip", "kannel", "sms-gate", "telnyx", "tencent",
    "twilio", "vonage", "yunpian",
];

/// A provider whose API has a file of its own.
pub struct Vendor {
    common: Common,
    api: Api,
}

/// Whose API it is.
enum Api {
    Aliyun(aliyun::Aliyun),
    AwsSms(aws_sms::AwsSms),
    AwsSns(aws_sns::AwsSns),
    Huawei(huawei::Huawei),
    Infobip(infobip::Infobip),
    Kannel(kannel::Kannel),
    SmsGate(sms_gate::SmsGate),
    Telnyx(telnyx::Telnyx),
    Tencent(tencent::Tencent),
    Twilio(twilio::Twilio),
    Vonage(vonage::Vonage),
    Yunpian(yunpian::Yunpian),
}

/// The secrets are in its settings, so it shows its name only.
impl fmt::Debug for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vendor")
            .field("kind", &self.common.kind)
            .field("name", &self.common.name)
            .finish_non_exhaustive()
    }
}

impl Vendor {
    /// Reads a stanza that has the vendor's defaults in it already.
    pub(super) fn read(
        stanza: &Stanza<'_>,
        kind: &'static str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        let (own, api) = match kind {
            "aliyun" => (aliyun::KEYS, Api::Aliyun(aliyun::Aliyun::read(stanza)?)),
            "aws-sms" => (aws_sms::KEYS, Api::AwsSms(aws_sms::AwsSms::read(stanza)?)),
            "aws-sns" => (aws_sns::KEYS, Api::AwsSns(aws_sns::AwsSns::read(stanza)?)),
            "huawei" => (huawei::KEYS, Api::Huawei(huawei::Huawei::read(stanza)?)),
            "infobip" => (infobip::KEYS, Api::Infobip(infobip::Infobip::read(stanza)?)),
            "kannel" => (kannel::KEYS, Api::Kannel(kannel::Kannel::read(stanza)?)),
            "sms-gate" => (
                sms_gate::KEYS,
                Api::SmsGate(sms_gate::SmsGate::read(stanza)?),
            ),
            "telnyx" => (telnyx::KEYS, Api::Telnyx(telnyx::Telnyx::read(stanza)?)),
            "tencent" => (tencent::KEYS, Api::Tencent(tencent::Tencent::read(stanza)?)),
            "twilio" => (twilio::KEYS, Api::Twilio(twilio::Twilio::read(stanza)?)),
            "vonage" => (vonage::KEYS, Api::Vonage(vonage::Vonage::read(stanza)?)),
            _ => (yunpian::KEYS, Api::Yunpian(yunpian::Yunpian::read(stanza)?)),
        };
        let mut known = vec!["url", "from", "secrets", "codes", "lookup"];
        known.extend(Connection::KEYS);
        known.extend(own);
        stanza.check_keys(&known)?;
        let url = match (stanza.optional::<String>("url")?, kind) {
            (Some(url), _) => url,
            (None, "aws-sms") => aws::url(stanza, "sms-voice")?,
            (None, "aws-sns") => aws::url(stanza, "sns")?,
            (None, _) => stanza.required("url")?,
        };
        let order = match kind {
            "huawei" | "tencent" => Order::Positional,
            _ => Order::Named,
        };
        let common = Common {
            name: stanza.name.to_owned(),
            kind,
            base: stanza.address("url", &url)?,
            from: stanza.optional("from")?,
            secrets: Secrets::read(stanza, environment)?,
            codes: Codes::read(stanza)?,
            parameters: Parameters::read(stanza, order)?,
            lookup: Lookup::read(stanza, &[])?,
            connection: Connection::read(stanza)?,
        };
        Ok(Self { common, api })
    }

    fn calls(&self) -> &dyn Calls {
        match &self.api {
            Api::Aliyun(api) => api,
            Api::AwsSms(api) => api,
            Api::AwsSns(api) => api,
            Api::Huawei(api) => api,
            Api::Infobip(api) => api,
            Api::Kannel(api) => api,
            Api::SmsGate(api) => api,
            Api::Telnyx(api) => api,
            Api::Tencent(api) => api,
            Api::Twilio(api) => api,
            Api::Vonage(api) => api,
            Api::Yunpian(api) => api,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.common.name
    }

    pub(super) fn kind(&self) -> &'static str {
        self.common.kind
    }

    pub(super) fn base(&self) -> &Url {
        &self.common.base
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.common.connection
    }

    pub(super) fn codes(&self) -> &Codes {
        &self.common.codes
    }

    pub(super) fn secrets(&self) -> &Forms {
        self.common.secrets.forms()
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let calls = self.calls();
        Capabilities {
            writes: calls.writes(&self.common),
            most_per_call: calls.most_per_call(),
            reference: calls.reference(),
            lookup: self.common.lookup.clone(),
            receipts: calls.receipts(),
        }
    }

    pub(super) fn missing(&self) -> Vec<&'static str> {
        self.calls().missing(&self.common)
    }

    pub(super) fn needs_sender(&self) -> bool {
        self.common.from.is_none() && self.calls().needs_sender()
    }

    pub(super) fn doubts(&self) -> Vec<String> {
        let mut doubts = self.common.secrets.doubts();
        doubts.extend(self.calls().doubts(&self.common));
        doubts
    }

    pub(super) fn preview(&self, message: &Message) -> Option<Result<String, Outcome>> {
        self.common.parameters.preview(message)
    }

    pub(super) fn parameters(&self) -> &Parameters {
        &self.common.parameters
    }

    pub(super) fn fits(&self, message: &Message) -> Result<(), Outcome> {
        self.calls().in_common(&self.common, message).map(drop)
    }

    pub(super) fn joins(&self, taken: &[Message], next: &Message) -> bool {
        let (calls, common) = (self.calls(), &self.common);
        let Some(first) = taken.first() else {
            return true;
        };
        taken.len() < calls.most_per_call()
            && first.from == next.from
            && taken.iter().all(|one| one.phone != next.phone)
            && match (
                calls.in_common(common, first),
                calls.in_common(common, next),
            ) {
                (Ok(first), Ok(next)) => first == next,
                _ => false,
            }
    }

    pub(super) fn request(
        &self,
        messages: &[Message],
        context: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let (calls, common) = (self.calls(), &self.common);
        let fits = |at: usize| self.joins(&messages[..at], &messages[at]);
        if let [only] = messages {
            calls.in_common(common, only)?;
        } else if messages.is_empty() || !(1..messages.len()).all(fits) {
            return Err(not_one(messages.len()));
        }
        if let Some(key) = calls.missing(common).first() {
            return Err(refused(format!("`{key}` is not set")));
        }
        calls.request(common, messages, context)
    }

    pub(super) fn answer(
        &self,
        messages: &[Message],
        response: &Response<Bytes>,
        now: Timestamp,
    ) -> Vec<Outcome> {
        let private = self.common.private(messages);
        let answer = Answer::read(response, &private, now);
        let outcomes = self.calls().answer(&self.common, messages, &answer);
        if outcomes.len() == messages.len() {
            return outcomes;
        }
        vec![answer.unknown(" with another count of results"); messages.len()]
    }

    pub(super) fn lookup(
        &self,
        message: &Message,
        attempt: Attempt,
        context: &RequestContext,
    ) -> Option<Result<Vec<Request<Bytes>>, Outcome>> {
        self.common.lookup.as_ref()?;
        self.calls().lookup(&self.common, message, attempt, context)
    }

    pub(super) fn ids(&self, responses: &[Response<Bytes>]) -> Vec<String> {
        let private = self.common.private(&[]);
        let read = |response| Answer::read(response, &private, Timestamp::default());
        let ids = |response| self.calls().ids(&read(response));
        responses.iter().flat_map(ids).collect()
    }

    pub(super) fn found(
        &self,
        message: &Message,
        attempt: Attempt,
        answers: &Answers<'_>,
    ) -> LookupResult {
        let Some(lookup) = &self.common.lookup else {
            return unclear("this provider cannot be asked".to_owned());
        };
        let private = self.common.private(std::slice::from_ref(message));
        let found = |answer: &Answer<'_>| {
            let sought = Sought::new(message, attempt, answer.date, answers);
            self.calls().found(&self.common, &sought, answer)
        };
        lookup.found(answers, attempt, &private, found)
    }
}

pub(super) const FORM: &str = "application/x-www-form-urlencoded";
pub(super) const JSON: &str = "application/json";

pub(super) fn get(url: &Url, headers: &[(HeaderName, String)]) -> Result<Request<Bytes>, Outcome> {
    http(Method::GET, url, headers, Bytes::new())
}

pub(super) fn post(
    url: &Url,
    kind: &str,
    authorization: Option<String>,
    body: impl Into<Bytes>,
) -> Result<Request<Bytes>, Outcome> {
    let mut headers = vec![(CONTENT_TYPE, kind.to_owned())];
    headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
    http(Method::POST, url, &headers, body.into())
}

pub(super) fn http(
    method: Method,
    url: &Url,
    headers: &[(HeaderName, String)],
    body: Bytes,
) -> Result<Request<Bytes>, Outcome> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    let uri = url.as_str().parse();
    *request.uri_mut() = uri.map_err(|_| refused("the request's url is too long".to_owned()))?;
    for (name, text) in headers {
        let mut value = HeaderValue::from_str(text)
            .map_err(|_| refused(format!("header `{name}` cannot carry this value")))?;
        value.set_sensitive(name == AUTHORIZATION);
        request.headers_mut().insert(name.clone(), value);
    }
    Ok(request)
}

/// A form's pairs, encoded.
pub(super) fn form<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut encoded = url::form_urlencoded::Serializer::new(String::new());
    encoded.extend_pairs(pairs);
    encoded.finish()
}

/// Every message of the request gets the same outcome, for it was said of all of them.
pub(super) fn all(messages: &[Message], outcome: &Outcome) -> Vec<Outcome> {
    outcome.clone().of_all(messages.len())
}

/// The only result, if the request carried one message: it is about that message, however it writes the number.
pub(super) fn only<'a>(messages: &[Message], results: &'a [Value]) -> Option<&'a Value> {
    match (messages, results) {
        ([_], [result]) => Some(result),
        _ => None,
    }
}

pub(super) fn refused(reason: String) -> Outcome {
    Outcome::AccountError {
        failure: Failure::new(Class::Account, reason),
        listed: true,
    }
}

pub(super) fn unclear(reason: String) -> LookupResult {
    LookupResult::Unclear(Failure::new(Class::Unknown, reason))
}

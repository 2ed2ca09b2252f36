//! Status lookups of every vendor, with valid and malformed responses: nothing panics, and only our own message
//! is found.

use bytes::Bytes;
use http::Response;
use jiff::fmt::rfc2822::DateTimePrinter;
use proptest::prelude::*;
use serde_json::{Value, json};
use smsq_message::sms::Timestamp;
use smsq_provider::{AttemptSpan, LookupResponses, LookupResult, Provider};

use crate::vendors::{PROVIDERS, context, documents, message, provider};

/// The result of a lookup `hours` after the attempt, by the clocks of both.
fn found(provider: &Provider, mut response: Response<Bytes>, hours: i64) -> LookupResult {
    let attempt = AttemptSpan {
        started_after: context().now,
        started_before: Some(context().now),
        is_only: true,
    };
    let looked_up_at = Timestamp::from_millis(context().now.as_millis() + hours * 3_600_000);
    let date = jiff::Timestamp::from_millisecond(looked_up_at.as_millis()).expect("an instant");
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&date);
    let date = date.expect("a date").parse().expect("a header");
    response.headers_mut().insert("date", date);
    let answers = LookupResponses {
        responses: &[response],
        asked_at: looked_up_at,
        others: &std::collections::BTreeSet::new(),
        unsettled: &[],
        refused: &[],
    };
    provider.parse_lookup(&message(), attempt, &answers)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn lookup_settles_only_on_success_and_never_panics(
        document in documents(),
        status in prop_oneof![Just(200_u16), Just(404), 400_u16..600],
    ) {
        for (kind, provider) in PROVIDERS.iter() {
            let mut response = Response::new(Bytes::from(document.to_string()));
            *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
            let finding = found(provider, response, 3);
            let is_settled = !matches!(finding, LookupResult::Unclear(_));
            let may_settle = status < 300 || (*kind == "sms-gate" && status == 404);
            prop_assert!(may_settle || !is_settled, "{}: {:?}", kind, finding);
            if provider.capabilities().lookup.is_none() {
                prop_assert!(!is_settled);
            }
        }
    }
}

#[test]
fn lookup_of_every_provider_finds_only_our_message() {
    let ours = json!({
        "id": "m1", "message_id": "m1", "message_uuid": "m1", "to": "+8613812345678",
        "to_number": "8613812345678", "message": message().content, "reference": message().reference,
        "client_reference": message().reference, "custom_string": message().reference,
        "created": "2023-11-14T22:13:21.123000", "message_time": "2023-11-14 22:13:21+00:00",
    });
    let mut other = ours.clone();
    for key in ["reference", "client_reference", "custom_string", "to", "to_number", "message"] {
        other[key] = "another".into();
    }
    for (kind, list) in [
        ("46elks", "data"),
        ("messagebird", "items"),
        ("plivo", "objects"),
        ("sinch", "batches"),
        ("clicksend", "data.data"),
    ] {
        let provider = provider(kind);
        let attempt = AttemptSpan {
            started_after: context().now,
            started_before: Some(context().now),
            is_only: true,
        };
        let lookup = provider.lookup(&message(), attempt, &context());
        lookup.expect("a lookup").unwrap_or_else(|outcome| panic!("{kind}: {outcome:?}"));
        let result_of = |entries: &Value, hours: i64| {
            let count = entries.as_array().map_or(0, Vec::len);
            let mut body = match list.split_once('.') {
                Some((outer, inner)) => json!({ outer: { inner: entries } }),
                None => json!({ list: entries }),
            };
            body["count"] = count.into();
            body["totalCount"] = count.into();
            body["meta"] = json!({ "next": null });
            found(&provider, Response::new(Bytes::from(body.to_string())), hours)
        };
        // The list of one vendor contains no texts, so an entry may be another message.
        let is_sure = kind != "plivo";
        let ours = result_of(&json!([other, ours]), 1);
        assert_eq!(matches!(ours, LookupResult::Found(_)), is_sure, "{kind}: {ours:?}");
        let can_be_absent = !["46elks", "clicksend"].contains(&kind);
        let absent = result_of(&json!([other]), 2);
        assert_eq!(absent == LookupResult::Absent, can_be_absent, "{kind}: {absent:?}");
        let early = result_of(&json!([]), 0);
        assert_eq!(matches!(early, LookupResult::TooSoon(_)), can_be_absent, "{kind}: {early:?}");
        let forgotten = result_of(&json!([]), 24 * 31);
        assert!(matches!(forgotten, LookupResult::Unclear(_)), "{kind}: {forgotten:?}");
    }
}

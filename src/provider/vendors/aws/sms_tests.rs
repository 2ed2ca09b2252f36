//! Requests and answers.

use smsq_message::phone::Phone;

use crate::Message;
use crate::testing::{assert_outcomes, assert_request, message, vendor};

#[test]
fn message_is_signed_json_with_target() {
    assert_request(
        &vendor("aws-sms", "from = '+12065550100'"),
        &[message()],
        &[
            "POST https://sms-voice.us-east-1.amazonaws.com/\n",
            "content-type: application/x-amz-json-1.0\n",
            "x-amz-target: PinpointSMSVoiceV2.SendTextMessage\n",
            "/us-east-1/sms-voice/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-target,",
            r#"{"DestinationPhoneNumber":"+8613812345678","MessageBody":"Hello Anna"#,
            r#""Context":{"reference":"ref-1"},"OriginationIdentity":"+12065550100","MessageType":"PROMOTIONAL"}"#,
        ],
    );
}

#[test]
fn dlt_ids_are_sent_to_indian_numbers_only() {
    let both = "dlt_entity_id = '1001'\ndlt_template_id = '2002'";
    let phone = Phone::parse("+919900000001", None).expect("a phone");
    let indian = [Message { phone, ..message() }];
    for (settings, messages, expected) in [
        (
            both,
            &indian,
            r#","DestinationCountryParameters":{"IN_ENTITY_ID":"1001","IN_TEMPLATE_ID":"2002"}}"#,
        ),
        (
            "dlt_entity_id = '1001'",
            &indian,
            r#","DestinationCountryParameters":{"IN_ENTITY_ID":"1001"}}"#,
        ),
        ("", &indian, r#","MessageType":"PROMOTIONAL"}"#),
        (both, &[message()], r#","MessageType":"PROMOTIONAL"}"#),
    ] {
        assert_request(&vendor("aws-sms", settings), messages, &[expected]);
    }
}

#[test]
fn reason_or_exception_decides() {
    let error = |kind: &str, reason: &str| {
        format!(r#"{{"__type":"com.amazonaws.x#{kind}","Reason":"{reason}","Message":"no"}}"#)
    };
    let conflict = |reason| error("ConflictException", reason);
    let quota = |reason| error("ServiceQuotaExceededException", reason);
    assert_outcomes(
        &vendor("aws-sms", ""),
        &[
            (200, r#"{"MessageId":"m1"}"#, "accepted m1"),
            (200, r#"{"MessageId":{}}"#, "unknown"),
            (400, &conflict("DESTINATION_PHONE_NUMBER_OPTED_OUT"), "opted_out"),
            (400, &conflict("DESTINATION_PHONE_NUMBER_NOT_VERIFIED"), "account"),
            (400, &quota("DAILY_DESTINATION_CALL_LIMIT"), "cap"),
            (400, &quota("MONTHLY_SPEND_LIMIT_REACHED_FOR_TEXT"), "account"),
            (400, &error("ValidationException", "SENDER_ID_NEW"), "account"),
            (400, r#"{"__type":"ThrottlingException"}"#, "throttle"),
            (400, r#"{"__type":"AccessDeniedException"}"#, "account"),
            (500, r#"{"__type":"InternalServerException"}"#, "unknown"),
            (400, &conflict("NEW"), "content"),
        ],
    );
}

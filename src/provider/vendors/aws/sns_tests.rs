//! Requests and answers.

use crate::testing::{assert_outcomes, assert_request, message, vendor};

#[test]
fn message_is_a_signed_form() {
    let provider = vendor("aws-sns", "from = 'SHOP'\nregion = 'eu-west-1'");
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://sns.eu-west-1.amazonaws.com/\n",
            "content-type: application/x-www-form-urlencoded\n",
            "x-amz-date: 20231114T221320Z\n",
            "AWS4-HMAC-SHA256 Credential=AWS_ACCESS_KEY_ID/20231114/eu-west-1/sns/aws4_request, SignedHeaders=",
            "Action=Publish&Version=2010-03-31&PhoneNumber=%2B8613812345678&Message=Hello+Anna",
            "&MessageAttributes.entry.1.Name=AWS.SNS.SMS.SMSType&MessageAttributes.entry.1.Value.DataType=String&MessageAttributes.entry.1.Value.StringValue=Promotional",
            "&MessageAttributes.entry.2.Name=AWS.SNS.SMS.SenderID",
        ],
    );
    assert_eq!(provider.warnings().len(), 1);
}

#[test]
fn answers_are_xml() {
    let success = "<PublishResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><PublishResult>\
                 <MessageId>94f20ce6</MessageId></PublishResult><ResponseMetadata><RequestId>f187</RequestId>\
                 </ResponseMetadata></PublishResponse>";
    let error = |code: &str| {
        format!(
            "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"
        )
    };
    assert_outcomes(
        &vendor("aws-sns", ""),
        &[
            (200, success, "accepted 94f20ce6"),
            (200, &success[..success.len() - 9], "unknown"),
            (200, "<PublishResponse><MessageId>7</MessageId></PublishResponse>", "unknown"),
            (200, "<html><MessageId>7</MessageId>", "unknown"),
            (200, "", "unknown"),
            (500, success, "unknown"),
            (400, &error("InvalidParameter"), "content"),
            (403, &error("AuthorizationError"), "account"),
            (400, &error("Throttling"), "throttle"),
            (429, &error("Throttled"), "throttle"),
            (400, &error("KMSThrottling"), "throttle"),
            (400, &error("KMSDisabled"), "account"),
            (500, &error("InternalError"), "unknown"),
            (503, "", "unknown"),
            (400, &error("New"), "content"),
        ],
    );
}

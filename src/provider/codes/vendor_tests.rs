//! The classes of all vendors' codes, as documented.

use smsq_message::sms::Outcome;

use crate::testing::{context, message, response, vendor, words};

/// A response with a code in place of `@`.
struct LookupResponses {
    kind: &'static str,
    settings: &'static str,
    status: u16,
    body: &'static str,
    classes: &'static [(&'static str, &'static [&'static str])],
}

const TABLE: [LookupResponses; 17] = [
    LookupResponses {
        kind: "huawei",
        settings: "channel = '88'\ntemplate = 't1'",
        status: 200,
        body: r#"{"code":"@","description":"no"}"#,
        classes: &[
            (
                "account",
                &[
                    "E000001", "E000023", "E000101", "E000102", "E000103", "E000104", "E000105",
                    "E000106", "E000109", "E000110", "E000111", "E000112", "E000620", "E000623",
                ],
            ),
            ("content", &["E000503", "E000510"]),
            ("unknown", &["E000000", "E900000"]),
        ],
    },
    // The status of a number comes with HTTP 200 and a code of the whole.
    LookupResponses {
        kind: "huawei",
        settings: "channel = '88'\ntemplate = 't1'",
        status: 200,
        body: r#"{"code":"E000510","result":[{"originTo":"+8613812345678","smsMsgId":"","status":"@"}]}"#,
        classes: &[
            ("throttle", &["E200015"]),
            ("recipient", &["E200024", "E200025", "E200026", "E200041"]),
            (
                "account",
                &[
                    "E200018", "E200027", "E200029", "E200030", "E200031", "E200032", "E200033",
                    "E000620",
                ],
            ),
            ("content", &["E000629", "E200028", "E200040"]),
            ("unknown", &["E200034", "E200099"]),
        ],
    },
    LookupResponses {
        kind: "aliyun",
        settings: "from = 'S'\ntemplate = 't1'",
        status: 200,
        body: r#"{"Code":"@","Message":"no"}"#,
        classes: &[
            ("opted_out", &["isv.CUSTOMER_REFUSED"]),
            ("recipient", &["isv.BLACK_KEY_CONTROL_LIMIT", "isv.SMS_TEST_NUMBER_LIMIT"]),
            ("account", &["isv.SECURITY_FROZEN_ACCOUNT", "isv.SMS_TEST_SIGN_TEMPLATE_LIMIT"]),
            ("cap", &["VALVE:M_MC", "VALVE:H_MC", "VALVE:D_MC"]),
            ("content", &["FILTER", "isv.NEW"]),
        ],
    },
    LookupResponses {
        kind: "aliyun",
        settings: "from = 'S'\ntemplate = 't1'",
        status: 400,
        body: r#"{"Code":"@","Message":"no"}"#,
        classes: &[
            (
                "account",
                &[
                    "IncompleteSignature",
                    "MissingSecurityToken",
                    "InvalidSecurityToken.Expired",
                    "InvalidSecurityToken.Malformed",
                ],
            ),
            ("unknown", &["SignatureNonceUsed"]),
        ],
    },
    LookupResponses {
        kind: "tencent",
        settings: "from = 'S'\nsdk_app_id = '1'\ntemplate = 't1'",
        status: 200,
        body: r#"{"Response":{"Error":{"Code":"@","Message":"no"}}}"#,
        classes: &[
            (
                "account",
                &[
                    "FailedOperation.MissingSignatureList",
                    "FailedOperation.TemplateIdNotExist",
                    "InvalidParameter.AppidAndBizId",
                    "InvalidParameterValue.MarketingTemplateWithoutUnsubscribe",
                    "UnauthorizedOperation",
                    "InvalidAction",
                    "NoSuchVersion",
                    "AuthFailure",
                ],
            ),
            ("cap", &["LimitExceeded"]),
            ("content", &["UnsupportedOperation", "UnknownParameter", "FailedOperation"]),
            ("unknown", &["InternalError"]),
        ],
    },
    LookupResponses {
        kind: "aws-sns",
        settings: "",
        status: 400,
        body: "<ErrorResponse><Error><Code>@</Code><Message>Invalid parameter: PhoneNumber Reason: no</Message></Error></ErrorResponse>",
        classes: &[
            ("recipient", &["InvalidParameter"]),
            ("account", &["IncompleteSignature", "NotAuthorized", "AccessDeniedException"]),
        ],
    },
    LookupResponses {
        kind: "aws-sns",
        settings: "",
        status: 400,
        body: "<ErrorResponse><Error><Code>@</Code><Message>Invalid parameter: Message too long</Message></Error></ErrorResponse>",
        classes: &[("content", &["InvalidParameter"])],
    },
    LookupResponses {
        kind: "aws-sms",
        settings: "",
        status: 400,
        body: r#"{"__type":"ValidationException","Message":"no","Reason":"@"}"#,
        classes: &[
            (
                "account",
                &[
                    "MESSAGE_TYPE_MISMATCH",
                    "NUMBER_CAPABILITIES_MISMATCH",
                    "RESOURCE_NOT_ACCESSIBLE",
                ],
            ),
            ("recipient", &["INTERNATIONAL_SENDING_NOT_SUPPORTED"]),
        ],
    },
    LookupResponses {
        kind: "aws-sms",
        settings: "",
        status: 400,
        body: r#"{"__type":"com.amazonaws.smsvoice#@:http://internal.amazon.com/","Message":"no"}"#,
        classes: &[(
            "account",
            &[
                "ServiceQuotaExceededException",
                "IncompleteSignatureException",
                "MissingAuthenticationTokenException",
            ],
        )],
    },
    LookupResponses {
        kind: "twilio",
        settings: "from = 'S'",
        status: 400,
        body: r#"{"code":@,"message":"no"}"#,
        classes: &[
            ("account", &["21609", "21655", "21659", "21660", "21703", "21705"]),
            ("recipient", &["21265", "21266", "21635"]),
        ],
    },
    LookupResponses {
        kind: "clicksend",
        settings: "",
        status: 200,
        body: r#"{"data":{"messages":[{"to":"+8613812345678","custom_string":"ref-1","status":"@"}]}}"#,
        classes: &[("content", &["EMPTY_MESSAGE", "MISSING_REQUIRED_FIELDS"])],
    },
    LookupResponses {
        kind: "africas-talking",
        settings: "",
        status: 201,
        body: r#"{"SMSMessageData":{"Message":"@","Recipients":[]}}"#,
        classes: &[
            ("account", &["InvalidSenderId", "InsufficientBalance"]),
            ("unknown", &["Sent to 0/1 Total Cost: 0"]),
        ],
    },
    LookupResponses {
        kind: "chuanglan",
        settings: "",
        status: 200,
        body: r#"{"code":"@","msgId":"","errorMsg":"no"}"#,
        classes: &[
            ("content", &["127", "129", "130", "136"]),
            ("recipient", &["133"]),
            ("account", &["134"]),
            ("cap", &["135"]),
            ("unknown", &["104", "199"]),
        ],
    },
    LookupResponses {
        kind: "smsc-ru",
        settings: "",
        status: 200,
        body: r#"{"error":"@","error_code":9}"#,
        classes: &[
            ("throttle", &["too many concurrent requests"]),
            ("unknown", &["duplicate request, wait a minute", "no"]),
        ],
    },
    LookupResponses {
        kind: "msg91",
        settings: "from = 'S'",
        status: 200,
        body: r#"{"message":"no","type":"error","code":"@"}"#,
        classes: &[
            ("account", &["105", "309"]),
            ("content", &["307", "308"]),
            ("unknown", &["310", "399"]),
        ],
    },
    LookupResponses {
        kind: "ovh",
        settings: "",
        status: 400,
        body: r#"{"errorCode":"@","message":"no"}"#,
        classes: &[("account", &["INVALID_SIGNATURE", "QUERY_TIME_OUT"]), ("content", &["NEW"])],
    },
    LookupResponses {
        kind: "yunpian",
        settings: "",
        status: 400,
        body: r#"{"code":@,"msg":"no"}"#,
        classes: &[
            ("unknown", &["-50", "-52", "-54", "-55", "-59"]),
            ("account", &["-57"]),
            ("throttle", &["-5"]),
        ],
    },
];

#[test]
fn codes_have_documented_classes() {
    for LookupResponses { kind, settings, status, body, classes } in TABLE {
        let provider = vendor(kind, settings);
        for (class, codes) in classes {
            for code in *codes {
                let body = body.replace('@', code);
                let words = words(&provider, &[message()], status, &body);
                assert_eq!(words, [*class], "{kind} {code}");
            }
        }
    }
}

#[test]
fn aws_sms_reads_the_exception_from_the_header() {
    let provider = vendor("aws-sms", "");
    let mut answer = response(400, "{}");
    let value = "ServiceQuotaExceededException:http://internal.amazon.com/coral/";
    let headers = answer.headers_mut();
    headers.insert("x-amzn-errortype", value.parse().expect("a header value"));
    let outcomes = provider.parse(&[message()], &answer, &context());
    let [Outcome::AccountError { failure, .. }] = outcomes.as_slice() else {
        panic!("{outcomes:?}");
    };
    assert_eq!(failure.code.as_deref(), Some("ServiceQuotaExceededException"));
}

#[test]
fn vonage_messages_reads_the_code_from_the_type_only() {
    let provider = vendor("vonage-messages", "");
    for (body, class) in [
        (
            r#"{"detail":"see #1000","type":"https://developer.vonage.com/api-errors/messages#1050"}"#,
            "recipient",
        ),
        (r#"{"detail":"see #1000"}"#, "content"),
        (r#"{"detail":"see #1000","type":"https://developer.vonage.com/api-errors"}"#, "content"),
    ] {
        let words = words(&provider, &[message()], 422, body);
        assert_eq!(words, [class], "{body}");
    }
}

#[test]
fn codes_matched_by_a_pattern_are_not_listed() {
    let listed = |kind, settings, code| vendor(kind, settings).knows_code(code);
    assert!(!listed("aliyun", "", "isv.NEW"));
    assert!(listed("aliyun", "", "isv.MOBILE_NUMBER_ILLEGAL"));
    assert!(!listed("tencent", "", "FailedOperation.New"));
    // The words of a text are a pattern of their own.
    assert!(listed("kannel", "", "Not routable"));
}

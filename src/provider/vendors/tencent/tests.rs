//! Requests, answers and status lookups.

use smsq_message::phone::Phone;

use crate::testing::{
    assert_contains, assert_outcomes, assert_request, joins, lookup_request, lookup_result,
    message, messages, vendor, words,
};

const SETTINGS: &str =
    "from = '腾讯云'\nsdk_app_id = '1400'\ntemplate = '1110'\nparams = ['order']";

#[test]
fn request_is_signed_json() {
    assert_request(
        &vendor("tencent", SETTINGS),
        &messages(2),
        &[
            "POST https://sms.tencentcloudapi.com/\n",
            "content-type: application/json\n",
            "TC3-HMAC-SHA256 Credential=TENCENT_SECRET_ID/2023-11-14/sms/tc3_request, SignedHeaders=content-type;host, Signature=",
            "x-tc-action: SendSms\n",
            "x-tc-version: 2021-01-11\n",
            "x-tc-timestamp: 1700000000\n",
            "x-tc-region: ap-guangzhou\n",
            r#"{"PhoneNumberSet":["+8613812345678","+8613812345679"],"SmsSdkAppId":"1400","TemplateId":"1110","TemplateParamSet":["4711"],"SessionContext":"ref-1","SignName":"腾讯云"}"#,
        ],
    );
}

#[test]
fn batch_has_same_parameters_and_country() {
    let provider = vendor("tencent", SETTINGS);
    let mut two = messages(2);
    assert!(joins(&provider, &two[..1], &two[1]));
    two[1].params["order"] = "4712".into();
    assert!(!joins(&provider, &two[..1], &two[1]));
    let mut two = messages(2);
    two[1].phone = Phone::parse("+447400123456", None).expect("a phone");
    assert!(!joins(&provider, &two[..1], &two[1]));
    assert_eq!(vendor("tencent", "").missing_settings(), ["sdk_app_id", "template"]);
}

#[test]
fn each_number_has_its_own_result() {
    let provider = vendor("tencent", SETTINGS);
    let two = messages(2);
    let mixed = r#"{"Response":{"SendStatusSet":[
        {"SerialNo":"s1","PhoneNumber":"+8613812345678","Fee":2,"Code":"Ok"},
        {"SerialNo":"","PhoneNumber":"+8613812345679","Fee":0,"Code":"LimitExceeded.PhoneNumberDailyLimit"}]}}"#;
    assert_eq!(words(&provider, &two, 200, mixed), ["accepted s1", "cap"]);
    let swapped = mixed.replace("78\"", "77\"");
    assert_eq!(words(&provider, &two, 200, &swapped), ["unknown", "cap"]);
    let one = r#"{"Response":{"SendStatusSet":[{"SerialNo":"s1","PhoneNumber":"+8613812345678","Code":"Ok"}]}}"#;
    assert_eq!(words(&provider, &two, 200, one), ["unknown", "unknown"]);
}

#[test]
fn codes_decide() {
    let item = |code: &str| {
        format!(
            r#"{{"Response":{{"SendStatusSet":[{{"SerialNo":"s","PhoneNumber":"+8613812345678","Code":"{code}"}}]}}}}"#
        )
    };
    let error =
        |code: &str| format!(r#"{{"Response":{{"Error":{{"Code":"{code}","Message":"m"}}}}}}"#);
    let echoed = |phone: &str, context: &str| {
        item("Ok")
            .replace("+8613812345678", phone)
            .replace(r#""Code":"#, &format!(r#""SessionContext":"{context}","Code":"#))
    };
    assert_outcomes(
        &vendor("tencent", SETTINGS),
        &[
            (200, &item("Ok"), "accepted s"),
            (200, &echoed("13812345678", "ref-1"), "accepted s"),
            (200, &echoed("+8613812345679", "ref-1"), "unknown"),
            (200, &echoed("+8613812345678", "ref-2"), "unknown"),
            (200, &item("FailedOperation.PhoneNumberInBlacklist"), "opted_out"),
            (200, &item("FailedOperation.MarketingSendTimeConstraint"), "throttle"),
            (200, &item("FailedOperation.New"), "content"),
            (200, &item("InternalError.Timeout"), "unknown"),
            (200, &item("Other"), "unknown"),
            (200, &error("AuthFailure.SignatureFailure"), "account"),
            (200, &error("RequestLimitExceeded.IpLimit"), "throttle"),
            (200, &error("UnauthorizedOperation.SmsSdkAppIdVerifyFail"), "account"),
            (500, &item("Ok"), "unknown"),
            (200, "{}", "unknown"),
        ],
    );
}

#[test]
fn lookup_finds_message_only_by_reference() {
    let provider = vendor("tencent", SETTINGS);
    assert_contains(
        &lookup_request(&provider),
        &[
            "x-tc-action: PullSmsSendStatusByPhoneNumber\n",
            r#"{"BeginTime":1699999940,"EndTime":1700000000,"Offset":0,"Limit":100,"PhoneNumber":"+8613812345678","SmsSdkAppId":"1400"}"#,
        ],
    );
    let list = |context: &str| {
        format!(
            r#"{{"Response":{{"PullSmsSendStatusSet":[{{"SerialNo":"s1","SessionContext":"{context}"}}]}}}}"#
        )
    };
    assert_eq!(lookup_result(&provider, 9, 200, &list("ref-1")), "found s1");
    assert_eq!(lookup_result(&provider, 9, 200, &list("")), "unclear");
    let none = r#"{"Response":{"PullSmsSendStatusSet":[]}}"#;
    assert_eq!(lookup_result(&provider, 99_999, 200, none), "unclear");
    assert_eq!(message().reference, "ref-1");
}

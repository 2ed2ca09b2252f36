//! Requests and answers.

use crate::testing::{assert_outcomes, assert_request, context, message, messages, vendor, words};

const SETTINGS: &str = "channel = '88'\ntemplate = 't1'\nparams = ['order']";

#[test]
fn request_is_a_form_with_a_digest() {
    assert_request(
        &vendor("huawei", SETTINGS),
        &messages(2),
        &[
            "POST https://smsapi.cn-north-4.myhuaweicloud.com/sms/batchSendSms/v1\n",
            r#"authorization: WSSE realm="SDP",profile="UsernameToken",type="Appkey""#,
            r#"Nonce="00000000000000000000000000000007",Created="2023-11-14T22:13:20Z""#,
            "from=88&to=%2B8613812345678%2C%2B8613812345679&templateId=t1&templateParas=%5B%224711%22%5D&extend=ref-1",
        ],
    );
    let digest = |more: &str| {
        let provider = vendor("huawei", &format!("{SETTINGS}\n{more}"));
        let request = provider.request(&[message()], &context()).expect("a request");
        let header = request.headers()["x-wsse"].to_str().expect("text").to_owned();
        let (_, digest) = header.split_once("PasswordDigest=\"").expect("a digest");
        digest.split('"').next().unwrap_or_default().to_owned()
    };
    // sha256sum of the nonce, the time and HUAWEI_APP_SECRET.
    assert_eq!(digest("digest = 'raw'").len(), 44);
    assert_eq!(digest("digest = 'hex'").len(), 88);
    assert_eq!(vendor("huawei", "").missing_settings(), ["channel", "template"]);
}

#[test]
fn each_phone_has_its_own_result() {
    let provider = vendor("huawei", SETTINGS);
    let item = |phone: &str, status: &str| {
        format!(r#"{{"originTo":"{phone}","smsMsgId":"m","status":"{status}"}}"#)
    };
    let whole = |items: &[String]| {
        format!(r#"{{"code":"000000","description":"Success","result":[{}]}}"#, items.join(","))
    };
    let (first, second) = ("+8613812345678", "+8613812345679");
    let mixed = whole(&[item(second, "E000620"), item(first, "000000")]);
    assert_eq!(words(&provider, &messages(2), 200, &mixed), ["accepted m", "account"]);
    let short = whole(&[item(first, "000000")]);
    assert_eq!(words(&provider, &messages(2), 200, &short), ["accepted m", "unknown"]);
    assert_outcomes(
        &provider,
        &[
            (200, &whole(&[]), "unknown"),
            (200, &whole(&[item(first, "E9")]), "unknown"),
            (200, &whole(&[item(second, "000000")]), "unknown"),
            (200, &whole(&[item("13812345678", "000000")]), "accepted m"),
            (401, r#"{"code":"E000111","description":"no"}"#, "account"),
            (400, r#"{"code":"E000011","description":"no"}"#, "account"),
            (200, r#"{"code":"E000000"}"#, "unknown"),
            (500, &whole(&[item(first, "000000")]), "unknown"),
        ],
    );
}

//! The signatures of vendors, tested against the examples of their documentation.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use smsq_message::sms::Timestamp;
use url::Url;

use super::times::utc;

const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How header `x-amz-date` writes an instant.
pub(super) const AMZ_DATE: &str = "%Y%m%dT%H%M%SZ";

/// The value of header `Authorization` for basic authentication.
pub(super) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

pub(super) fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

pub(super) fn sha256_hex(text: &str) -> String {
    hex::encode(sha256(text.as_bytes()))
}

pub(super) fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

/// Encodes everything but the unreserved characters of RFC 3986.
pub(super) fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, &RESERVED).to_string()
}

/// A query such as `a=1&b=2`, sorted by name, as signatures require.
pub(super) fn sorted_query(pairs: &[(&str, &str)]) -> String {
    let mut sorted: Vec<_> = pairs.iter().collect();
    sorted.sort_unstable();
    let encoded: Vec<String> = sorted
        .into_iter()
        .map(|(name, value)| format!("{}={}", percent_encoded(name), percent_encoded(value)))
        .collect();
    encoded.join("&")
}

/// An access key of a cloud provider.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) id: &'a str,
    pub(super) secret: &'a str,
}

/// The hash of a `POST` in canonical form, and the names of its headers.
fn canonical_hash(
    path: &str,
    query: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (String, String) {
    let mut lines = String::new();
    for (name, value) in headers {
        lines.extend([name, ":", value.trim(), "\n"]);
    }
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let body = hex::encode(sha256(body));
    let canonical = format!("POST\n{path}\n{query}\n{lines}\n{names}\n{body}");
    (sha256_hex(&canonical), names)
}

/// Alibaba Cloud's ACS3-HMAC-SHA256 of a `POST`: the value of header `Authorization`. `headers` are all signed headers
/// in lower case and sorted, including `host` and `x-acs-content-sha256`.
/// <https://help.aliyun.com/zh/sdk/product-overview/v3-request-structure-and-signature>
pub(super) fn acs3(
    keys: Keys<'_>,
    path: &str,
    query: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> String {
    let (hash, names) = canonical_hash(path, query, headers, body);
    let to_sign = format!("ACS3-HMAC-SHA256\n{hash}");
    let signature = hex::encode(hmac_sha256(keys.secret.as_bytes(), to_sign.as_bytes()));
    let id = keys.id;
    format!("ACS3-HMAC-SHA256 Credential={id},SignedHeaders={names},Signature={signature}")
}

/// Tencent Cloud's TC3-HMAC-SHA256 of a `POST /`: the value of header `Authorization`. `headers` are all signed
/// headers in lower case and sorted.
/// <https://cloud.tencent.com/document/api/382/52072>
pub(super) fn tc3(
    keys: Keys<'_>,
    service: &str,
    now: Timestamp,
    headers: &[(&str, &str)],
    body: &[u8],
) -> String {
    let (hash, names) = canonical_hash("/", "", headers, body);
    let seconds = now.as_millis().div_euclid(1_000).to_string();
    let date = utc(now, "%Y-%m-%d");
    let scope = [date.as_str(), service, "tc3_request"];
    scoped(keys, "TC3", &seconds, &scope, &hash, &names)
}

/// The version 4 signature of AWS for a `POST`: the value of header `Authorization`. `headers` are all signed headers
/// in lower case and sorted, including `host` and `x-amz-date`.
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>
pub(super) fn sigv4(
    keys: Keys<'_>,
    [region, service]: [&str; 2],
    now: Timestamp,
    url: &Url,
    headers: &[(&str, &str)],
    body: &[u8],
) -> String {
    // The signature encodes the encoded path again.
    let path: Vec<String> = url.path().split('/').map(percent_encoded).collect();
    let pairs: Vec<_> = url.query_pairs().collect();
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| (&**name, &**value)).collect();
    let (hash, names) = canonical_hash(&path.join("/"), &sorted_query(&pairs), headers, body);
    let date = utc(now, "%Y%m%d");
    let scope = [date.as_str(), region, service, "aws4_request"];
    scoped(keys, "AWS4", &utc(now, AMZ_DATE), &scope, &hash, &names)
}

/// Signs with a key that is derived from the secret and each part of `scope`.
fn scoped(
    keys: Keys<'_>,
    version: &str,
    time: &str,
    scope: &[&str],
    hash: &str,
    signed_names: &str,
) -> String {
    let secret = format!("{version}{}", keys.secret).into_bytes();
    let key = scope.iter().fold(secret, |key, part| hmac_sha256(&key, part.as_bytes()));
    let scope = scope.join("/");
    let algorithm = format!("{version}-HMAC-SHA256");
    let to_sign = format!("{algorithm}\n{time}\n{scope}\n{hash}");
    let signature = hex::encode(hmac_sha256(&key, to_sign.as_bytes()));
    let id = keys.id;
    format!(
        "{algorithm} Credential={id}/{scope}, SignedHeaders={signed_names}, Signature={signature}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the vendor's documentation.
    #[test]
    fn acs3_matches_the_documentation() {
        let keys = Keys { id: "YourAccessKeyId", secret: "YourAccessKeySecret" };
        let query = sorted_query(&[
            ("RegionId", "cn-shanghai"),
            ("ImageId", "win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd"),
        ]);
        let headers = [
            ("host", "ecs.cn-shanghai.aliyuncs.com"),
            ("x-acs-action", "RunInstances"),
            (
                "x-acs-content-sha256",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            ("x-acs-date", "2023-10-26T10:22:32Z"),
            ("x-acs-signature-nonce", "3156853299f313e23d1673dc12e1703d"),
            ("x-acs-version", "2014-05-26"),
        ];
        let signed = acs3(keys, "/", &query, &headers, b"");
        assert_eq!(
            signed,
            "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;\
             x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,\
             Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0"
        );
    }

    /// The old and the new example of the vendor's documentation.
    #[test]
    fn tc3_matches_the_documentation() {
        let now = Timestamp::from_millis(1_551_113_065_000);
        let body = r#"{"Limit": 1, "Filters": [{"Values": ["\u672a\u547d\u540d"], "Name": "instance-name"}]}"#;
        assert_eq!(
            hex::encode(sha256(body.as_bytes())),
            "35e9c5b0e3ae67532d3c9f17ead6c90222632e5b1ff7f6e89887f1398934f064"
        );
        let kind = ("content-type", "application/json; charset=utf-8");
        let host = ("host", "cvm.tencentcloudapi.com");
        let sign = |secret, headers: &[(&str, &str)]| {
            let keys = Keys { id: "AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE", secret };
            tc3(keys, "cvm", now, headers, body.as_bytes())
        };
        let old = sign("Gu5t9xGARNpq86cd98joQYCN3EXAMPLE", &[kind, host]);
        assert_eq!(
            old,
            "TC3-HMAC-SHA256 Credential=AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE/2019-02-25/cvm/tc3_request, \
             SignedHeaders=content-type;host, \
             Signature=72e494ea809ad7a8c8f7a4507b9bddcbaa8e581f516e8da2f66e2c5a96525168"
        );
        let action = ("x-tc-action", "describeinstances");
        let new = sign(&"*".repeat(32), &[kind, host, action]);
        assert!(
            new.ends_with("10b1a37a7301a02ca19a647ad722d5e43b4b3cff309d421d85b46093f6ab6c4f"),
            "{new}"
        );
    }

    /// An example of the vendor's test suite.
    #[test]
    fn sigv4_matches_the_test_suite() {
        let keys = Keys { id: "AKIDEXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" };
        let hash = "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e";
        let headers = [
            ("content-length", "13"),
            ("content-type", "application/x-www-form-urlencoded"),
            ("host", "example.amazonaws.com"),
            ("x-amz-content-sha256", hash),
            ("x-amz-date", "20150830T123600Z"),
        ];
        let now = Timestamp::from_millis(1_440_938_160_000);
        let url = Url::parse("https://example.amazonaws.com/").expect("a URL");
        let scope = ["us-east-1", "service"];
        assert_eq!(
            sigv4(keys, scope, now, &url, &headers, b"Param1=value1"),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=content-length;content-type;host;x-amz-content-sha256;x-amz-date, \
             Signature=d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b"
        );
    }

    #[test]
    fn sorted_query_is_sorted_and_percent_encoded() {
        let query = sorted_query(&[("b", "a b*~/+"), ("a", "你")]);
        assert_eq!(query, "a=%E4%BD%A0&b=a%20b%2A~%2F%2B");
    }
}

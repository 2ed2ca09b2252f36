//! The signature of an event, as Standard Webhooks describes it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretSlice};
use sha2::Sha256;

/// What a secret begins with.
const PREFIX: &str = "whsec_";
/// The least and the most bytes of a key.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;

/// The key of a hook.
pub(super) struct SigningKey(SecretSlice<u8>);

impl SigningKey {
    /// Reads `whsec_` and 24 to 64 bytes in base64. The error does not have the secret.
    pub(super) fn parse(secret: &str) -> Result<Self, &'static str> {
        let encoded = secret.trim().strip_prefix(PREFIX).ok_or("must begin with `whsec_`")?;
        let key = STANDARD.decode(encoded).map_err(|_| "is not base64 after `whsec_`")?;
        if LENGTHS.contains(&key.len()) {
            Ok(Self(key.into()))
        } else {
            Err("must have 24 to 64 bytes: `openssl rand -base64 32` makes them")
        }
    }

    /// The value of header `webhook-signature`. `at`: in seconds since the Unix epoch, as in `webhook-timestamp`.
    pub(super) fn sign(&self, id: &str, at: i64, body: &str) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.0.expose_secret()).expect("any length is good");
        for part in [id, ".", &at.to_string(), ".", body] {
            mac.update(part.as_bytes());
        }
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the documentation of Standard Webhooks' reference libraries.
    #[test]
    fn signature_is_that_of_the_known_answer() {
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").ok();
        let body = r#"{"test": 2432232314}"#;
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signature = key.map(|key| key.sign(id, 1_614_265_330, body));
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signature.as_deref(), Some(expected));
    }

    #[test]
    fn short_or_unencoded_secret_is_refused() {
        for (secret, reason) in [
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin"),
            ("whsec_MfKQ9r8G", "24 to 64 bytes"),
            ("whsec_not base64", "not base64"),
        ] {
            let error = SigningKey::parse(secret).err();
            let error = error.expect(secret);
            assert!(error.contains(reason), "{secret}: {error}");
        }
    }
}

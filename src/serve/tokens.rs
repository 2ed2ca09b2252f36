//! Access tokens and their roles: how the configuration has them, and what each role may do.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The longest name of a token, in bytes.
const MAX_NAME: usize = 40;
/// The name in the audit log of the owner of the printed link.
pub(super) const LOCAL: &str = "local";
/// Names that only the audit log uses.
const RESERVED_NAMES: [&str; 2] = ["worker", LOCAL];
/// Tokens that attackers try first. Tokens of `smsq serve token` are random.
const GUESSABLE: [&str; 16] = [
    "", "1234", "12345678", "123456", "abc123", "admin", "changeme", "example", "hello", "letmein",
    "password", "qwerty", "secret", "smsq", "test", "token",
];

/// What the owner of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Look at pages and reports, without phones and texts.
    Read,
    /// Also see phones and texts, and control campaigns.
    Operate,
    /// Only add messages, and ask for them.
    Send,
    /// Everything.
    Admin,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Read, Self::Operate, Self::Send, Self::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Send => "send",
            Self::Admin => "admin",
        }
    }

    pub(super) const fn may(self, permission: Permission) -> bool {
        match permission {
            Permission::View => matches!(self, Self::Read | Self::Operate | Self::Admin),
            Permission::Operate => matches!(self, Self::Operate | Self::Admin),
            Permission::Send => matches!(self, Self::Send | Self::Admin),
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|role| role.as_str() == word).ok_or_else(|| {
            format!("unknown role `{word}`: use `read`, `operate`, `send` or `admin`")
        })
    }
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    View,
    /// To see phones and texts, and to change something.
    Operate,
    Send,
}

/// An access token as the configuration has it: `NAME:ROLE:HASH`, the hash of the token as SHA-256 in hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    pub name: String,
    pub role: Role,
    hash: [u8; 32],
}

impl AccessToken {
    /// A new random token; returns its text, which is stored nowhere.
    pub fn generate(name: &str, role: Role) -> Result<(String, Self), String> {
        if RESERVED_NAMES.contains(&name) {
            return Err(format!("invalid name `{name}`: use {}", reserved(name)));
        }
        let text = random_token();
        let hash = hash(&text);
        Self::new(name, role, hash).map(|token| (text, token))
    }

    fn new(name: &str, role: Role, hash: [u8; 32]) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) {
            return Err(format!(
                "invalid name `{}`: use up to {MAX_NAME} letters, digits, `-`, `_` and `.`",
                name.escape_debug()
            ));
        }
        let name = name.to_owned();
        Ok(Self { name, role, hash })
    }
}

impl fmt::Display for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = hex::encode(self.hash);
        write!(f, "{}:{}:{hash}", self.name, self.role.as_str())
    }
}

impl FromStr for AccessToken {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let (Some(name), Some(role), Some(hash), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("must be `NAME:ROLE:HASH`, as `smsq serve token` prints it".to_owned());
        };
        let mut bytes = [0; 32];
        hex::decode_to_slice(hash, &mut bytes)
            .map_err(|_| "the hash must be 64 hex digits, as `smsq serve token` prints it")?;
        Self::new(name, role.parse()?, bytes)
    }
}

/// The tokens of the configuration: a list, or a text with commas from the environment.
#[derive(Clone, Debug, Default)]
pub struct AccessTokens(Vec<AccessToken>);

impl AccessTokens {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The owner of a token. Compares with all tokens, in a time that does not depend on them.
    pub(super) fn owner(&self, text: &str) -> Option<Identity> {
        let given = hash(text);
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.hash.ct_eq(&given)) {
                found = Some(Identity { name: token.name.clone(), role: token.role });
            }
        }
        found
    }

    /// What is wrong with them, as what is expected: names are different and not reserved, and no token can be guessed.
    pub(super) fn problem(&self) -> Option<String> {
        let mut names = BTreeSet::new();
        self.0.iter().find_map(|token| {
            let name = &token.name;
            if RESERVED_NAMES.contains(&name.as_str()) {
                return Some(reserved(name));
            }
            if !names.insert(name) {
                return Some(format!("different names: two tokens are named `{name}`"));
            }
            let is_guessable = GUESSABLE.into_iter().any(|word| hash(word) == token.hash);
            is_guessable.then(|| {
                format!(
                    "tokens of `smsq serve token`: that of `{name}` is a word that anybody can guess"
                )
            })
        })
    }
}

fn reserved(name: &str) -> String {
    format!("a name other than `{name}`, which the audit log uses")
}

impl<'de> Deserialize<'de> for AccessTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Texts::deserialize(deserializer)?
            .into_vec()
            .iter()
            .map(|text| text.parse())
            .collect::<Result<Vec<AccessToken>, String>>()
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// A list of texts, or one text with commas from the environment.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    /// The texts that are not empty.
    pub(super) fn into_vec(self) -> Vec<String> {
        let texts = match self {
            Self::Many(texts) => texts,
            Self::One(text) => text.split(',').map(str::to_owned).collect(),
        };
        texts
            .iter()
            .map(|text| text.trim())
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

/// 256 random bits for a URL or a header.
pub(super) fn random_token() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// SHA-256, by which tokens and the ids of sessions are known.
pub(super) fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) role: Role,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A token of each role, and their texts.
    pub(crate) fn of_each_role() -> (Vec<String>, AccessTokens) {
        let tokens = Role::ALL.map(|role| AccessToken::generate(role.as_str(), role));
        let tokens = tokens.map(|token| token.expect("a good name"));
        let (texts, tokens) = tokens.into_iter().unzip();
        (texts, AccessTokens(tokens))
    }

    #[test]
    fn token_is_read_as_it_is_printed() {
        let (text, token) = AccessToken::generate("ann", Role::Operate).expect("a good name");
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert!(!token.to_string().contains(&text));
        for bad in ["", "ann", "ann:read:12", "ann:root:aa", "a b:read:aa", "a:read:b:c"] {
            assert!(bad.parse::<AccessToken>().is_err(), "{bad}");
        }
    }

    #[test]
    fn roles_may_do_different_things() {
        use Permission::{Operate, Send, View};
        let may = |role: Role| [View, Operate, Send].map(|permission| role.may(permission));
        assert_eq!(may(Role::Read), [true, false, false]);
        assert_eq!(may(Role::Operate), [true, true, false]);
        assert_eq!(may(Role::Send), [false, false, true]);
        assert_eq!(may(Role::Admin), [true, true, true]);
    }

    #[test]
    fn tokens_that_can_be_guessed_or_confused_are_refused() {
        let token = |name: &str, text: &str| AccessToken {
            name: name.to_owned(),
            role: Role::Read,
            hash: hash(text),
        };
        let problem = |tokens: &[AccessToken]| AccessTokens(tokens.to_vec()).problem();
        let (ann, bob) = (token("ann", "a random text"), token("bob", "another"));
        assert_eq!(problem(&[ann.clone(), bob]), None);
        let twice = problem(&[ann.clone(), token("ann", "another")]);
        assert_eq!(twice.as_deref(), Some("different names: two tokens are named `ann`"));
        for name in RESERVED_NAMES {
            assert!(problem(&[token(name, "a random text")]).is_some(), "{name}");
            assert!(AccessToken::generate(name, Role::Read).is_err(), "{name}");
        }
        let guessable = problem(&[ann, token("bob", "test")]).expect("a problem");
        assert!(guessable.contains("`bob`"), "{guessable}");
    }
}

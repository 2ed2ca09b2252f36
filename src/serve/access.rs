//! Who may do what: access tokens and their roles, the cookie of a browser, and the checks that keep other sites out.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, Method, header};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use url::Url;

/// How long a browser stays logged in.
const SESSION: Duration = Duration::from_secs(12 * 3600);
/// The longest name of a token, in bytes.
const MAX_NAME: usize = 40;
/// Failed log-ins of one address that are answered within [`FAILED_WITHIN`].
const MAX_FAILED: u32 = 5;
const FAILED_WITHIN: Duration = Duration::from_secs(60);
/// More addresses than this are forgotten.
const MAX_ADDRESSES: usize = 10_000;
/// How long the printed link works.
const ONE_TIME: Duration = Duration::from_secs(600);
/// Names that the audit log uses: of workers, and of the owner of the printed link.
const RESERVED_NAMES: [&str; 2] = ["worker", LOCAL];
const LOCAL: &str = "local";
/// Tokens that somebody would try first. Tokens of `smsq serve token` are random.
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
        let found = Self::ALL.into_iter().find(|role| role.as_str() == word);
        found.ok_or_else(|| {
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
        let texts = Texts::deserialize(deserializer)?.into_vec();
        let tokens: Result<Vec<AccessToken>, String> =
            texts.iter().map(|text| text.parse()).collect();
        tokens.map(Self).map_err(serde::de::Error::custom)
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
        let texts = texts.iter().map(|text| text.trim());
        texts
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

/// 256 random bits for a URL or a header.
pub(super) fn random_token() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) role: Role,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessError {
    /// A name that is not this server's: a page of another site may have sent it.
    Host,
    /// From a page of another site.
    CrossSite,
    /// Without a token, or with an unknown one.
    Unknown,
    Forbidden,
    TooManyAttempts,
}

/// Knows the tokens of this server, and who is logged in.
pub(super) struct AccessControl {
    tokens: Vec<AccessToken>,
    /// The token of the link that was printed, and when it expires. It can be used once.
    one_time: Mutex<Option<([u8; 32], u64)>>,
    /// Signs cookies; another start of the server has another one.
    cookie_key: [u8; 32],
    /// The name of the cookie. Browsers send a cookie to all ports of a host, so each port has its own.
    cookie_name: String,
    /// Sessions that were ended before they expired, each with that time.
    ended: Mutex<HashMap<String, u64>>,
    failed: Mutex<HashMap<IpAddr, (Instant, u32)>>,
    /// Where others reach the server, if it is behind a proxy.
    public_url: Option<Url>,
    trusted_proxies: Vec<IpNet>,
}

/// What a cookie says.
struct Session {
    id: String,
    identity: Identity,
    expires_at: u64,
}

impl AccessControl {
    /// `port`: where the server listens.
    pub(super) fn new(config: &super::Config, port: u16) -> Self {
        let public_url = config.public_url.clone();
        // Over HTTPS a browser accepts the name with `__Host-` only with `Secure`.
        let cookie_name = match &public_url {
            Some(url) if is_https(url) => {
                format!(
                    "__Host-smsq-{}",
                    url.port_or_known_default().unwrap_or(port)
                )
            }
            _ => format!("smsq-{port}"),
        };
        Self {
            tokens: config.tokens.expose().0.clone(),
            one_time: Mutex::new(None),
            cookie_key: rand::random(),
            cookie_name,
            ended: Mutex::default(),
            failed: Mutex::default(),
            public_url,
            trusted_proxies: config.trusted_proxies.clone(),
        }
    }

    /// A token that logs one browser in as `admin`, within ten minutes.
    pub(super) fn issue_one_time(&self, now: u64) -> String {
        let token = random_token();
        if let Ok(mut one_time) = self.one_time.lock() {
            *one_time = Some((hash(&token), now + ONE_TIME.as_secs()));
        }
        token
    }

    /// The owner of a token. Compares with all tokens, in a time that does not depend on them.
    fn owner(&self, token: &str) -> Option<Identity> {
        let given = hash(token);
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.hash.ct_eq(&given)) {
                found = Some(Identity {
                    name: token.name.clone(),
                    role: token.role,
                });
            }
        }
        found
    }

    /// Uses up the token of the printed link.
    fn take_one_time(&self, token: &str, now: u64) -> Option<Identity> {
        let mut one_time = self.one_time.lock().ok()?;
        let is_it = one_time.is_some_and(|(known, expires_at)| {
            bool::from(known.ct_eq(&hash(token))) && now < expires_at
        });
        is_it.then(|| {
            *one_time = None;
            Identity {
                name: LOCAL.to_owned(),
                role: Role::Admin,
            }
        })
    }

    /// Logs a browser in; returns the value of header `Set-Cookie`.
    pub(super) fn log_in(
        &self,
        token: &str,
        address: IpAddr,
        now: u64,
    ) -> Result<(Identity, String), AccessError> {
        let token = token.trim();
        // A right token is never refused because of the wrong ones of others at its address.
        let owner = self.owner(token);
        let Some(owner) = owner.or_else(|| self.take_one_time(token, now)) else {
            return Err(self.refuse(address));
        };
        if !owner.role.may(Permission::View) {
            return Err(AccessError::Forbidden);
        }
        let expires_at = now + SESSION.as_secs();
        let (name, role, id) = (&owner.name, owner.role.as_str(), random_token());
        let claims = format!("{name}|{role}|{expires_at}|{id}");
        let signature = URL_SAFE_NO_PAD.encode(self.sign(&claims).finalize().into_bytes());
        let value = format!("{}.{signature}", URL_SAFE_NO_PAD.encode(claims));
        let cookie = self.set_cookie(&value, SESSION.as_secs());
        Ok((owner, cookie))
    }

    /// Ends the session of a browser; returns the value of header `Set-Cookie` that deletes its cookie.
    pub(super) fn log_out(&self, headers: &HeaderMap, now: u64) -> String {
        if let (Some(session), Ok(mut ended)) = (self.session(headers, now), self.ended.lock()) {
            ended.retain(|_, expires_at| *expires_at > now);
            ended.insert(session.id, session.expires_at);
        }
        self.set_cookie("", 0)
    }

    fn set_cookie(&self, value: &str, seconds: u64) -> String {
        let name = &self.cookie_name;
        let is_secure = self.public_url.as_ref().is_some_and(is_https);
        let secure = if is_secure { "; Secure" } else { "" };
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    fn sign(&self, claims: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.cookie_key).expect("any length is good");
        mac.update(claims.as_bytes());
        mac
    }

    /// The session of the cookie, unless it has expired or was ended.
    fn session(&self, headers: &HeaderMap, now: u64) -> Option<Session> {
        let values = headers.get_all(header::COOKIE).iter();
        let cookies = values.filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|value| value.split(';'));
        let name = self.cookie_name.as_str();
        let value = pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))?;
        let (claims, signature) = value.split_once('.')?;
        let claims = String::from_utf8(URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.sign(&claims).verify_slice(&signature).ok()?;
        let mut parts = claims.split('|');
        let (name, role) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        let (expires_at, id) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
        let is_ended = self.ended.lock().ok()?.contains_key(&id);
        (expires_at > now && !is_ended).then_some(Session {
            id,
            identity: Identity { name, role },
            expires_at,
        })
    }

    /// Who sent a request with a cookie, for pages.
    pub(super) fn of_browser(&self, headers: &HeaderMap, now: u64) -> Option<Identity> {
        self.session(headers, now).map(|session| session.identity)
    }

    /// Who sent a request with `Authorization: Bearer TOKEN`, for programs. Their requests never use the cookie, so a
    /// page of another site cannot send them.
    pub(super) fn of_program(
        &self,
        headers: &HeaderMap,
        address: IpAddr,
    ) -> Result<Identity, AccessError> {
        let value = headers.get(header::AUTHORIZATION);
        let value = value.and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let Some(token) = token else {
            return Err(AccessError::Unknown);
        };
        self.owner(token).ok_or_else(|| self.refuse(address))
    }

    /// Why a wrong token is refused. The first ones of an address are logged.
    fn refuse(&self, address: IpAddr) -> AccessError {
        let Ok(mut failed) = self.failed.lock() else {
            return AccessError::Unknown;
        };
        if failed.len() >= MAX_ADDRESSES {
            failed.clear();
        }
        let entry = failed.entry(address).or_insert((Instant::now(), 0));
        if entry.0.elapsed() >= FAILED_WITHIN {
            *entry = (Instant::now(), 0);
        }
        entry.1 += 1;
        match entry.1 {
            count if count < MAX_FAILED => {
                tracing::warn!(%address, "an unknown access token was refused");
                AccessError::Unknown
            }
            MAX_FAILED => {
                tracing::warn!(
                    %address,
                    "an unknown access token was refused; further ones are not logged for a minute"
                );
                AccessError::Unknown
            }
            _ => AccessError::TooManyAttempts,
        }
    }

    /// Whether many clients have this address: programs on this machine, or a proxy.
    pub(super) fn is_shared(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.is_trusted(address)
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        let is_in = |network: &IpNet| network.contains(&address);
        self.trusted_proxies.iter().any(is_in)
    }

    /// The address of the client: behind proxies, the one that the first of them has seen.
    pub(super) fn client(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let is_proxy = self.is_trusted(peer) || (self.public_url.is_some() && peer.is_loopback());
        if !is_proxy {
            return peer;
        }
        let values = headers.get_all("x-forwarded-for").iter();
        let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
        // Each proxy adds what it has seen at the end; what is before that can be forged.
        let addresses = values.iter().rev().flat_map(|value| value.rsplit(','));
        let addresses = addresses.map_while(|text| text.trim().parse::<IpAddr>().ok());
        let mut last = peer;
        for address in addresses.map(|address| address.to_canonical()) {
            last = address;
            if !self.is_trusted(address) {
                break;
            }
        }
        last
    }

    /// Refuses names of other hosts: another site's name may be made to point to this address. An address is safe.
    pub(super) fn check_host(&self, host: Option<&str>) -> Result<(), AccessError> {
        let host = host.ok_or(AccessError::Host)?;
        let url = Url::parse(&format!("http://{host}/")).map_err(|_| AccessError::Host)?;
        let public_url = self.public_url.as_ref();
        match url.host() {
            Some(url::Host::Ipv4(_) | url::Host::Ipv6(_)) => Ok(()),
            Some(url::Host::Domain(name))
                if name == "localhost" || public_url.and_then(Url::host_str) == Some(name) =>
            {
                Ok(())
            }
            _ => Err(AccessError::Host),
        }
    }

    /// Refuses changes that a page of another site asks a browser for. `Origin` is for browsers without
    /// `Sec-Fetch-Site`.
    pub(super) fn check_site(
        &self,
        method: &Method,
        headers: &HeaderMap,
        host: Option<&str>,
    ) -> Result<(), AccessError> {
        if method.is_safe() {
            return Ok(());
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(site) = text("sec-fetch-site") {
            return match site {
                "same-origin" => Ok(()),
                _ => Err(AccessError::CrossSite),
            };
        }
        let origin = text("origin").and_then(|origin| Url::parse(origin).ok());
        let origin = origin.ok_or(AccessError::CrossSite)?;
        let is_public = self.public_url.as_ref().map(Url::origin) == Some(origin.origin());
        let own = host.and_then(|host| Url::parse(&format!("http://{host}/")).ok());
        if is_public || own.map(|own| own.origin()) == Some(origin.origin()) {
            Ok(())
        } else {
            Err(AccessError::CrossSite)
        }
    }
}

fn is_https(url: &Url) -> bool {
    url.scheme() == "https"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    const NOW: u64 = 1_763_715_600;
    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn access(public_url: Option<&str>) -> (AccessControl, Vec<String>) {
        let tokens = Role::ALL.map(|role| AccessToken::generate(role.as_str(), role));
        let tokens = tokens.map(|token| token.expect("a good name"));
        let public_url = public_url.map(|url| url.parse().expect("a URL"));
        let (texts, tokens) = tokens.into_iter().unzip();
        let config = super::super::Config {
            listen: ([127, 0, 0, 1], 8026).into(),
            public_url,
            trusted_proxies: vec!["192.0.2.0/24".parse().expect("a network")],
            tokens: Secret::new(AccessTokens(tokens)),
            max_waiting: 1,
            max_campaigns: 1,
            receipt_key: Secret::default(),
        };
        (AccessControl::new(&config, 8026), texts)
    }

    fn with(name: &str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let name: http::HeaderName = name.parse().expect("a name");
        headers.insert(name, value.parse().expect("a value"));
        headers
    }

    fn cookie_of(set: &str) -> HeaderMap {
        with("cookie", set.split(';').next().expect("a pair"))
    }

    #[test]
    fn token_is_read_as_it_is_printed() {
        let (text, token) = AccessToken::generate("ann", Role::Operate).expect("a good name");
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert!(!token.to_string().contains(&text));
        for bad in [
            "",
            "ann",
            "ann:read:12",
            "ann:root:aa",
            "a b:read:aa",
            "a:read:b:c",
        ] {
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
    fn cookie_of_a_token_is_valid_until_it_expires() {
        let (access, texts) = access(None);
        let (owner, cookie) = access.log_in(&texts[1], ADDRESS, NOW).expect("a token");
        assert_eq!(
            (owner.name.as_str(), owner.role),
            ("operate", Role::Operate)
        );
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        let headers = cookie_of(&cookie);
        assert_eq!(access.of_browser(&headers, NOW + 60), Some(owner));
        assert_eq!(access.of_browser(&headers, NOW + 13 * 3600), None);
        let (other, _) = self::access(None);
        assert_eq!(other.of_browser(&headers, NOW), None, "another start");
    }

    #[test]
    fn changed_cookie_is_refused() {
        let (access, texts) = access(None);
        let (_, cookie) = access.log_in(&texts[0], ADDRESS, NOW).expect("a token");
        let claims = URL_SAFE_NO_PAD.encode(format!("read|admin|{}", NOW + 3600));
        let signature = cookie.split(['.', ';']).nth(1).expect("a signature");
        let forged = format!("smsq-8026={claims}.{signature}");
        assert_eq!(access.of_browser(&with("cookie", &forged), NOW), None);
        for bad in ["", ".", "a.b", "%%.%%"] {
            let cookie = with("cookie", &format!("smsq-8026={bad}"));
            assert_eq!(access.of_browser(&cookie, NOW), None, "{bad}");
        }
    }

    #[test]
    fn session_ends_when_its_browser_logs_out() {
        let (access, texts) = access(None);
        let log_in = || access.log_in(&texts[0], ADDRESS, NOW).expect("a token").1;
        let (ended, other) = (cookie_of(&log_in()), cookie_of(&log_in()));
        assert!(
            access
                .log_out(&ended, NOW + 1)
                .contains("=; Path=/; Max-Age=0")
        );
        assert_eq!(access.of_browser(&ended, NOW + 2), None);
        assert!(access.of_browser(&other, NOW + 2).is_some());
    }

    #[test]
    fn cookies_of_two_ports_of_a_host_have_two_names() {
        let (plain, texts) = access(None);
        let cookie = plain.log_in(&texts[0], ADDRESS, NOW).expect("a token").1;
        assert!(cookie.starts_with("smsq-8026="), "{cookie}");
        let (secure, texts) = access(Some("https://sms.example.net/"));
        let cookie = secure.log_in(&texts[0], ADDRESS, NOW).expect("a token").1;
        assert!(cookie.starts_with("__Host-smsq-443="), "{cookie}");
        assert!(cookie.ends_with("; Secure"), "{cookie}");
    }

    #[test]
    fn one_time_token_works_once_and_for_ten_minutes() {
        let (access, _) = access(None);
        let token = access.issue_one_time(NOW);
        assert!(access.log_in(&token, ADDRESS, NOW + 599).is_ok());
        let again = access.log_in(&token, ADDRESS, NOW + 599);
        assert_eq!(again.err(), Some(AccessError::Unknown));
        let token = access.issue_one_time(NOW);
        let late = access.log_in(&token, ADDRESS, NOW + 600);
        assert_eq!(late.err(), Some(AccessError::Unknown));
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
        assert_eq!(
            twice.as_deref(),
            Some("different names: two tokens are named `ann`")
        );
        for name in RESERVED_NAMES {
            assert!(problem(&[token(name, "a random text")]).is_some(), "{name}");
            assert!(AccessToken::generate(name, Role::Read).is_err(), "{name}");
        }
        let guessable = problem(&[ann, token("bob", "test")]).expect("a problem");
        assert!(guessable.contains("`bob`"), "{guessable}");
    }

    #[test]
    fn token_that_only_sends_cannot_log_in() {
        let (access, texts) = access(None);
        let refused = access.log_in(&texts[2], ADDRESS, NOW);
        assert_eq!(refused.err(), Some(AccessError::Forbidden));
        let headers = with("authorization", &format!("Bearer {}", texts[2]));
        assert!(access.of_program(&headers, ADDRESS).is_ok());
    }

    #[test]
    fn right_token_works_after_wrong_ones_of_its_address() {
        let (access, texts) = access(None);
        for _ in 0..MAX_FAILED {
            let failed = access.log_in("wrong", ADDRESS, NOW);
            assert_eq!(failed.err(), Some(AccessError::Unknown));
        }
        let refused = access.log_in("wrong", ADDRESS, NOW);
        assert_eq!(refused.err(), Some(AccessError::TooManyAttempts));
        assert!(access.log_in(&texts[3], ADDRESS, NOW).is_ok());
    }

    #[test]
    fn names_of_other_hosts_are_refused() {
        let (access, _) = access(Some("https://sms.example.net/"));
        for good in [
            "127.0.0.1:8026",
            "localhost:1",
            "[::1]:8026",
            "10.1.2.3",
            "sms.example.net",
        ] {
            assert_eq!(access.check_host(Some(good)), Ok(()), "{good}");
        }
        for bad in ["evil.example", "sms.example.net.evil.example", "a b", ""] {
            let refused = access.check_host(Some(bad));
            assert_eq!(refused, Err(AccessError::Host), "{bad}");
        }
        assert_eq!(access.check_host(None), Err(AccessError::Host));
    }

    #[test]
    fn changes_come_only_from_pages_of_this_server() {
        let (access, _) = access(Some("https://sms.example.net/"));
        let check =
            |headers: &HeaderMap| access.check_site(&Method::POST, headers, Some("127.0.0.1:8026"));
        assert_eq!(check(&with("sec-fetch-site", "same-origin")), Ok(()));
        assert_eq!(check(&with("origin", "http://127.0.0.1:8026")), Ok(()));
        assert_eq!(check(&with("origin", "https://sms.example.net")), Ok(()));
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "none"),
            ("origin", "http://127.0.0.1:9999"),
            ("origin", "null"),
            ("accept", "*/*"),
        ] {
            let refused = check(&with(name, value));
            assert_eq!(refused, Err(AccessError::CrossSite), "{name}: {value}");
        }
        assert_eq!(
            access.check_site(&Method::GET, &with("sec-fetch-site", "cross-site"), None),
            Ok(())
        );
    }

    #[test]
    fn proxy_names_the_client() {
        let (direct, _) = access(None);
        let (behind, _) = access(Some("https://sms.example.net/"));
        let headers = with("x-forwarded-for", "1.1.1.1, 203.0.113.7");
        assert_eq!(direct.client(&headers, ADDRESS), ADDRESS);
        assert_eq!(
            behind.client(&headers, ADDRESS),
            IpAddr::from([203, 0, 113, 7])
        );
        let elsewhere = IpAddr::from([10, 0, 0, 9]);
        assert_eq!(behind.client(&headers, elsewhere), elsewhere);
        // Of two trusted proxies the first one has seen the client.
        let proxy = IpAddr::from([192, 0, 2, 1]);
        let headers = with("x-forwarded-for", "1.1.1.1, 203.0.113.7, 192.0.2.2");
        assert_eq!(
            direct.client(&headers, proxy),
            IpAddr::from([203, 0, 113, 7])
        );
        assert_eq!(direct.client(&HeaderMap::new(), proxy), proxy);
        assert!(direct.is_shared(proxy) && direct.is_shared(ADDRESS));
        assert!(!direct.is_shared(elsewhere));
    }
}

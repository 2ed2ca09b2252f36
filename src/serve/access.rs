//! Who sent a request: the sessions of browsers, the tokens of programs, and the checks that keep other sites out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum_extra::extract::cookie::{Cookie, CookieJar, SameSite};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::{HeaderMap, Method};
use ipnet::IpNet;
use subtle::ConstantTimeEq as _;
use url::Url;

use super::config::Config;
use super::tokens::{AccessTokens, Identity, LOCAL, Permission, Role, hash, random_token};

/// How long a browser stays logged in.
const SESSION: Duration = Duration::from_secs(12 * 3600);
/// The most sessions; a further one ends the oldest.
const MAX_SESSIONS: usize = 10_000;
/// Failed log-ins of one address that are answered and logged at once; then as many per minute.
const MAX_FAILED: NonZeroU32 = NonZeroU32::new(5).expect("not zero");
/// Addresses with failed log-ins that are remembered. While as many failed within the last minute, log-ins from other
/// addresses get 429, so that an attacker with many addresses cannot make the server forget any of them.
const MAX_ADDRESSES: usize = 10_000;
/// How long the printed link works.
const ONE_TIME: Duration = Duration::from_secs(600);

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

/// Knows the tokens of this server, and who is logged in. Sessions are kept in memory only, so a restart ends them.
pub(super) struct AccessControl {
    tokens: AccessTokens,
    /// The token of the link that was printed, and when it expires. It can be used once.
    one_time: Mutex<Option<([u8; 32], Instant)>>,
    /// The name of the cookie. Browsers send a cookie to all ports of a host, so each port has its own.
    cookie_name: String,
    /// By the hash of their id, which only the cookie has.
    sessions: Mutex<HashMap<[u8; 32], Session>>,
    failed: DefaultKeyedRateLimiter<IpAddr>,
    /// Where others reach the server, if it is behind a proxy.
    public_url: Option<Url>,
    trusted_proxies: Vec<IpNet>,
}

/// A browser that is logged in.
struct Session {
    identity: Identity,
    expires_at: Instant,
}

impl AccessControl {
    /// `port`: where the server listens.
    pub(super) fn new(config: &Config, port: u16) -> Self {
        let public_url = config.public_url.clone();
        // Over HTTPS a browser accepts the name with `__Host-` only with `Secure`.
        let cookie_name = match &public_url {
            Some(url) if is_https(url) => {
                let port = url.port_or_known_default().unwrap_or(port);
                format!("__Host-smsq-{port}")
            }
            _ => format!("smsq-{port}"),
        };
        Self {
            tokens: config.tokens.expose().clone(),
            one_time: Mutex::new(None),
            cookie_name,
            sessions: Mutex::default(),
            failed: RateLimiter::keyed(Quota::per_minute(MAX_FAILED)),
            public_url,
            trusted_proxies: config.trusted_proxies.clone(),
        }
    }

    /// A token that logs one browser in as `admin`, within ten minutes.
    pub(super) fn issue_one_time(&self, now: Instant) -> String {
        let token = random_token();
        *lock(&self.one_time) = Some((hash(&token), now + ONE_TIME));
        token
    }

    /// Uses up the token of the printed link.
    fn take_one_time(&self, token: &str, now: Instant) -> Option<Identity> {
        lock(&self.one_time)
            .take_if(|(known, expires_at)| {
                bool::from(known.ct_eq(&hash(token))) && now < *expires_at
            })
            .map(|_| Identity { name: LOCAL.to_owned(), role: Role::Admin })
    }

    /// Logs a browser in; returns its owner and its cookie.
    pub(super) fn log_in(
        &self,
        token: &str,
        address: IpAddr,
        now: Instant,
    ) -> Result<(Identity, Cookie<'static>), AccessError> {
        let token = token.trim();
        // A right token is never refused because of the wrong ones of others at its address.
        let identity = self
            .tokens
            .owner(token)
            .or_else(|| self.take_one_time(token, now))
            .ok_or_else(|| self.refuse(address))?;
        if !identity.role.may(Permission::View) {
            return Err(AccessError::Forbidden);
        }
        let id = random_token();
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, session| session.expires_at > now);
        if sessions.len() >= MAX_SESSIONS
            && let Some((oldest, _)) = sessions.iter().min_by_key(|(_, one)| one.expires_at)
        {
            let oldest = *oldest;
            sessions.remove(&oldest);
        }
        let session = Session { identity: identity.clone(), expires_at: now + SESSION };
        sessions.insert(hash(&id), session);
        Ok((identity, self.cookie(id)))
    }

    /// Ends the session of a browser; returns the cookies without its own.
    pub(super) fn log_out(&self, cookies: CookieJar) -> CookieJar {
        if let Some(cookie) = cookies.get(&self.cookie_name) {
            lock(&self.sessions).remove(&hash(cookie.value()));
        }
        cookies.remove(self.cookie(String::new()))
    }

    fn cookie(&self, id: String) -> Cookie<'static> {
        Cookie::build((self.cookie_name.clone(), id))
            .path("/")
            .max_age(SESSION.try_into().expect("twelve hours"))
            .http_only(true)
            .same_site(SameSite::Strict)
            .secure(self.public_url.as_ref().is_some_and(is_https))
            .build()
    }

    /// Who sent a request with a cookie, for pages.
    pub(super) fn of_browser(&self, cookies: &CookieJar, now: Instant) -> Option<Identity> {
        let id = hash(cookies.get(&self.cookie_name)?.value());
        lock(&self.sessions)
            .get(&id)
            .filter(|session| session.expires_at > now)
            .map(|session| session.identity.clone())
    }

    /// The owner of a token that a program sends. Its requests never use the cookie, so a page of another site cannot
    /// send them.
    pub(super) fn of_program(&self, token: &str, address: IpAddr) -> Result<Identity, AccessError> {
        let owner = self.tokens.owner(token.trim());
        owner.ok_or_else(|| self.refuse(address))
    }

    /// Why a wrong token is refused. The first ones of an address are logged.
    fn refuse(&self, address: IpAddr) -> AccessError {
        if self.failed.len() >= MAX_ADDRESSES {
            self.failed.retain_recent();
            if self.failed.len() >= MAX_ADDRESSES {
                return AccessError::TooManyAttempts;
            }
        }
        if self.failed.check_key(&address).is_err() {
            return AccessError::TooManyAttempts;
        }
        tracing::warn!(
            %address,
            "an unknown access token was refused; more than {MAX_FAILED} in a minute are not logged"
        );
        AccessError::Unknown
    }

    /// Whether many clients have this address: programs on this machine, or a proxy.
    pub(super) fn is_shared(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.is_trusted(address)
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(&address))
    }

    /// The address of the client: behind proxies, the one that the first of them has seen.
    pub(super) fn client(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let is_proxy = self.is_trusted(peer) || (self.public_url.is_some() && peer.is_loopback());
        if !is_proxy {
            return peer;
        }
        let values: Vec<&str> = headers
            .get_all("x-forwarded-for")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        let mut last = peer;
        // Each proxy adds what it has seen at the end; what is before that can be forged.
        for text in values.iter().rev().flat_map(|value| value.rsplit(',')) {
            let Ok(address) = text.trim().parse::<IpAddr>() else {
                break;
            };
            let address = address.to_canonical();
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
        let origin = text("origin")
            .and_then(|origin| Url::parse(origin).ok())
            .map(|origin| origin.origin())
            .ok_or(AccessError::CrossSite)?;
        let is_public = self.public_url.as_ref().map(Url::origin).as_ref() == Some(&origin);
        let own = host.and_then(|host| Url::parse(&format!("http://{host}/")).ok());
        if is_public || own.is_some_and(|own| own.origin() == origin) {
            Ok(())
        } else {
            Err(AccessError::CrossSite)
        }
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_https(url: &Url) -> bool {
    url.scheme() == "https"
}

#[cfg(test)]
mod tests {
    use smsq_message::secret::Secret;

    use super::super::tokens::tests::of_each_role;
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn access(public_url: Option<&str>) -> (AccessControl, Vec<String>) {
        let (texts, tokens) = of_each_role();
        let config = Config {
            listen: ([127, 0, 0, 1], 8026).into(),
            public_url: public_url.map(|url| url.parse().expect("a URL")),
            trusted_proxies: vec!["192.0.2.0/24".parse().expect("a network")],
            tokens: Secret::new(tokens),
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

    /// What a browser with this cookie sends.
    fn sent(cookie: &Cookie<'static>) -> CookieJar {
        let pair = format!("{}={}", cookie.name(), cookie.value());
        CookieJar::from_headers(&with("cookie", &pair))
    }

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[test]
    fn cookie_of_a_token_is_valid_until_it_expires() {
        let (access, texts) = access(None);
        let (owner, cookie) = access.log_in(&texts[1], ADDRESS, Instant::now()).expect("a token");
        assert_eq!((owner.name.as_str(), owner.role), ("operate", Role::Operate));
        assert_eq!(cookie.http_only(), Some(true));
        assert_eq!(cookie.same_site(), Some(SameSite::Strict));
        let cookies = sent(&cookie);
        assert_eq!(access.of_browser(&cookies, after(60)), Some(owner));
        assert_eq!(access.of_browser(&cookies, after(13 * 3600)), None);
        let (other, _) = self::access(None);
        let found = other.of_browser(&cookies, Instant::now());
        assert_eq!(found, None, "another start");
    }

    #[test]
    fn unknown_cookie_is_refused() {
        let (access, texts) = access(None);
        let now = Instant::now();
        let (_, cookie) = access.log_in(&texts[0], ADDRESS, now).expect("a token");
        let shorter = &cookie.value()[1..];
        for bad in [shorter, "", ".", "a.b", "%%.%%"] {
            let cookie = Cookie::new("smsq-8026", bad.to_owned());
            assert_eq!(access.of_browser(&sent(&cookie), now), None, "{bad}");
        }
    }

    #[test]
    fn oldest_session_ends_when_there_are_too_many() {
        let (access, texts) = access(None);
        let now = Instant::now();
        let log_in = |at| access.log_in(&texts[0], ADDRESS, at).expect("a token").1;
        let (oldest, second) = (log_in(now), log_in(after(1)));
        for _ in 2..=MAX_SESSIONS {
            log_in(after(2));
        }
        assert_eq!(access.of_browser(&sent(&oldest), now), None);
        assert!(access.of_browser(&sent(&second), now).is_some());
    }

    #[test]
    fn session_ends_when_its_browser_logs_out() {
        let (access, texts) = access(None);
        let now = Instant::now();
        let log_in = || access.log_in(&texts[0], ADDRESS, now).expect("a token").1;
        let (ended, other) = (sent(&log_in()), sent(&log_in()));
        let left = access.log_out(ended.clone());
        assert!(left.get("smsq-8026").is_none());
        assert_eq!(access.of_browser(&ended, now), None);
        assert!(access.of_browser(&other, now).is_some());
    }

    #[test]
    fn cookies_of_two_ports_of_a_host_have_two_names() {
        for (url, name, secure) in [
            (None, "smsq-8026", Some(false)),
            (Some("https://sms.example.net/"), "__Host-smsq-443", Some(true)),
        ] {
            let (access, texts) = access(url);
            let (_, cookie) = access.log_in(&texts[0], ADDRESS, Instant::now()).expect("a token");
            assert_eq!((cookie.name(), cookie.secure()), (name, secure));
        }
    }

    #[test]
    fn one_time_token_works_once_and_for_ten_minutes() {
        let (access, _) = access(None);
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let token = access.issue_one_time(now);
        assert!(access.log_in(&token, ADDRESS, later(599)).is_ok());
        let again = access.log_in(&token, ADDRESS, later(599));
        assert_eq!(again.err(), Some(AccessError::Unknown));
        let token = access.issue_one_time(now);
        let late = access.log_in(&token, ADDRESS, later(600));
        assert_eq!(late.err(), Some(AccessError::Unknown));
    }

    #[test]
    fn token_that_only_sends_cannot_log_in() {
        let (access, texts) = access(None);
        let refused = access.log_in(&texts[2], ADDRESS, Instant::now());
        assert_eq!(refused.err(), Some(AccessError::Forbidden));
        assert!(access.of_program(&texts[2], ADDRESS).is_ok());
    }

    #[test]
    fn right_token_works_after_wrong_ones_of_its_address() {
        let (access, texts) = access(None);
        for _ in 0..MAX_FAILED.get() {
            let failed = access.log_in("wrong", ADDRESS, Instant::now());
            assert_eq!(failed.err(), Some(AccessError::Unknown));
        }
        let refused = access.log_in("wrong", ADDRESS, Instant::now());
        assert_eq!(refused.err(), Some(AccessError::TooManyAttempts));
        let right = access.log_in(&texts[3], ADDRESS, Instant::now());
        assert!(right.is_ok());
    }

    #[test]
    fn many_addresses_do_not_make_a_refused_one_forgotten() {
        let (access, texts) = access(None);
        for _ in 0..MAX_FAILED.get() {
            access.refuse(ADDRESS);
        }
        for index in 0..20_000_u32 {
            access.refuse(IpAddr::from((0x0a00_0000 + index).to_be_bytes()));
        }
        assert!(access.failed.len() <= MAX_ADDRESSES);
        assert_eq!(access.refuse(ADDRESS), AccessError::TooManyAttempts);
        assert!(access.of_program(&texts[0], ADDRESS).is_ok());
    }

    #[test]
    fn names_of_other_hosts_are_refused() {
        let (access, _) = access(Some("https://sms.example.net/"));
        for good in ["127.0.0.1:8026", "localhost:1", "[::1]:8026", "10.1.2.3", "sms.example.net"] {
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
        assert_eq!(behind.client(&headers, ADDRESS), IpAddr::from([203, 0, 113, 7]));
        let elsewhere = IpAddr::from([10, 0, 0, 9]);
        assert_eq!(behind.client(&headers, elsewhere), elsewhere);
        // Of two trusted proxies the first one has seen the client.
        let proxy = IpAddr::from([192, 0, 2, 1]);
        let headers = with("x-forwarded-for", "1.1.1.1, 203.0.113.7, 192.0.2.2");
        assert_eq!(direct.client(&headers, proxy), IpAddr::from([203, 0, 113, 7]));
        assert_eq!(direct.client(&HeaderMap::new(), proxy), proxy);
        assert!(direct.is_shared(proxy) && direct.is_shared(ADDRESS));
        assert!(!direct.is_shared(elsewhere));
    }
}

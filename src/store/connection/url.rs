//! The URL of a server.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::{
    AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode,
};
use secrecy::SecretString;
use smsq_message::text::is_printable;

/// The kinds of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Postgres,
    /// Or MariaDB.
    Mysql,
}

/// The parts of a server's URL. `Display` shows it without the password.
#[derive(Clone)]
pub(crate) struct ServerUrl {
    pub(crate) kind: ServerKind,
    pub(super) user: String,
    pub(super) password: Option<SecretString>,
    /// Host names or addresses, and ports, in the order in which they are tried.
    pub(crate) hosts: Vec<(String, u16)>,
    /// A Unix socket to use instead of the network.
    pub(super) socket: Option<PathBuf>,
    pub(super) database: String,
    pub(super) encrypted: bool,
    /// A file with the certificates of a private authority, in PEM.
    pub(super) authority: Option<PathBuf>,
    /// Nothing is written, so a replica or a user without write permission is allowed.
    pub(crate) is_only_read: bool,
}

/// What would end a part of a URL, or is not visible in it.
const RESERVED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'+')
    .add(b'/')
    .add(b':')
    .add(b'?')
    .add(b'@');

const PARAMETERS: &str = "`tls=required|off`, `tls_ca=FILE`, `socket=PATH`";

impl ServerKind {
    pub(crate) fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::Mysql),
            _ => None,
        }
    }

    /// The expression for the server's clock, in milliseconds since the Unix epoch.
    pub(crate) const fn clock(self) -> &'static str {
        match self {
            Self::Postgres => "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
            // Sessions are at UTC.
            Self::Mysql => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(3)) DIV 1000",
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::Postgres => 5432,
            Self::Mysql => 3306,
        }
    }

    const fn scheme(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }
}

impl ServerUrl {
    /// Parses `scheme://user:password@host1:port,host2/database?parameters`. The error never has the password.
    pub(crate) fn parse(kind: ServerKind, url: &str) -> Result<Self, String> {
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        if rest[end..].contains('@') {
            return Err(
                "has an `@` after the host: in a user, a password or a path write `/` as `%2F`, \
                 `?` as `%3F` and `@` as `%40`"
                    .to_owned(),
            );
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password)?)),
            None => (login, None),
        };
        let mut parsed = Self {
            kind,
            user: decoded(user)?,
            password: password.map(SecretString::from),
            hosts: Vec::new(),
            socket: None,
            database: decoded(database)?,
            encrypted: true,
            authority: None,
            is_only_read: false,
        };
        for host in hosts.split(',').filter(|host| !host.is_empty()) {
            parsed.hosts.push(host_and_port(host, kind.port())?);
        }
        if parsed.hosts.is_empty() {
            parsed.hosts.push(("127.0.0.1".to_owned(), kind.port()));
        }
        // Connections within this machine need no encryption, and few have a certificate for it.
        parsed.encrypted = !parsed.hosts.iter().all(|(host, _)| is_loopback(host));
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            parsed.set(&key, &value)?;
        }
        if parsed.user.is_empty() {
            return Err("has no user: write it like `user@host/database`".to_owned());
        }
        if parsed.database.is_empty() {
            return Err("has no database: write it like `user@host/database`".to_owned());
        }
        Ok(parsed)
    }

    /// Whether a host that cannot be written is allowed. Of several hosts, one that can be written is used.
    pub(super) fn takes_read_only(&self) -> bool {
        self.is_only_read && self.hosts.len() == 1
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match (key, value.to_ascii_lowercase().as_str()) {
            ("tls" | "sslmode" | "ssl-mode", "off" | "disable" | "disabled") => {
                self.encrypted = false;
            }
            (
                "tls" | "sslmode" | "ssl-mode",
                "required" | "require" | "verify-ca" | "verify-full" | "verify_ca"
                | "verify_identity",
            ) => self.encrypted = true,
            ("tls_ca" | "sslrootcert" | "ssl-ca", _) => self.authority = Some(value.into()),
            ("socket", _) => {
                self.socket = Some(value.into());
                self.encrypted = false;
            }
            // The first host of a list that can be written is always taken.
            ("target_session_attrs", "read-write" | "primary") => {}
            _ => {
                let secrets = ["pass", "pwd", "secret"];
                // A value may have a further parameter, after a second `?`.
                let is_secret =
                    secrets.iter().any(|word| key.contains(word) || value.contains(word));
                let value = if is_secret { "…" } else { value };
                return Err(format!("has `{key}={value}`; it may have {PARAMETERS}"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}@", self.kind.scheme(), encoded(&self.user))?;
        for (index, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let is_v6 = host.contains(':');
            let (open, close) = if is_v6 { ("[", "]") } else { ("", "") };
            write!(f, "{comma}{open}{host}{close}")?;
            if *port != self.kind.port() {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}", encoded(&self.database))?;
        match &self.socket {
            Some(socket) => write!(f, "?socket={}", encoded(&socket.to_string_lossy())),
            None => Ok(()),
        }
    }
}

/// Printable, and decoded to the same text.
fn encoded(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        if is_printable(character) && !character.is_ascii() {
            shown.push(character);
            continue;
        }
        let mut buffer = [0; 4];
        let character = &*character.encode_utf8(&mut buffer);
        shown.extend(utf8_percent_encode(character, RESERVED));
    }
    shown
}

/// Reads the URL of a server: what is shown of it, and its password.
#[cfg(feature = "fuzz")]
pub fn fuzz_server_url(url: &str) -> Result<(String, Option<String>), String> {
    use secrecy::ExposeSecret as _;
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let kind = ServerKind::of(scheme).ok_or("has another scheme")?;
    let parsed = ServerUrl::parse(kind, url)?;
    let password = parsed.password.as_ref();
    let password = password.map(|password| password.expose_secret().to_owned());
    Ok((parsed.to_string(), password))
}

/// Adds the password to a URL, unless it has one.
pub(crate) fn with_password(url: &str, password: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    let Some((login, _)) = authority.rsplit_once('@') else {
        return url.to_owned();
    };
    if login.contains(':') || ServerKind::of(scheme).is_none() {
        return url.to_owned();
    }
    let password = utf8_percent_encode(password, NON_ALPHANUMERIC);
    format!("{scheme}://{login}:{password}{}", &rest[login.len()..])
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| "has a part that is not UTF-8".to_owned())
}

fn host_and_port(text: &str, port: u16) -> Result<(String, u16), String> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, rest) = match bracketed {
        Some((host, rest)) => (host, rest),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    // Neither is quoted because it may be part of a password.
    let is_part = |c: char| c.is_alphanumeric() || "-_.%".contains(c);
    let is_host = match bracketed {
        Some(_) => host.contains(':') && host.chars().all(|c| c == ':' || is_part(c)),
        None => !host.is_empty() && host.chars().all(is_part),
    };
    if !is_host {
        return Err("has an invalid host".to_owned());
    }
    let port = match rest.strip_prefix(':') {
        Some(number) => number.parse().ok(),
        None => rest.is_empty().then_some(port),
    };
    let port = port.ok_or("has an invalid port")?;
    Ok((host.to_owned(), port))
}

fn is_loopback(host: &str) -> bool {
    let number: Option<std::net::IpAddr> = host.parse().ok();
    host == "localhost" || number.is_some_and(|number| number.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    fn mysql(url: &str) -> Result<ServerUrl, String> {
        ServerUrl::parse(ServerKind::Mysql, url)
    }

    #[test]
    fn url_may_have_several_hosts() {
        let parsed = mysql("mysql://me:p%40ss@one,two:3307,[::1]:3308/queue").expect("a url");
        let hosts = [("one", 3306), ("two", 3307), ("::1", 3308)];
        assert_eq!(parsed.hosts, hosts.map(|(host, port)| (host.to_owned(), port)));
        let password = parsed.password.as_ref().expect("a password");
        assert_eq!(password.expose_secret(), "p@ss");
        assert_eq!(parsed.to_string(), "mysql://me@one,two:3307,[::1]:3308/queue");
    }

    #[test]
    fn url_is_shown_as_one_that_can_be_parsed() {
        for (url, shown) in [
            ("mysql://a%40b:p@host/d%2Fe%20%25", "mysql://a%40b@host/d%2Fe%20%25"),
            ("postgres://%1B%5B31m%E2%80%AE@h%25/ünï", "postgres://%1B[31m%E2%80%AE@h%25/ünï"),
            (
                "mysql://me@host/queue?socket=/run/a%20b.sock",
                "mysql://me@host/queue?socket=%2Frun%2Fa%20b.sock",
            ),
        ] {
            let kind = ServerKind::of(url.split_once(':').expect("a scheme").0);
            let kind = kind.expect("a server");
            let parsed = ServerUrl::parse(kind, url).expect("a URL");
            assert_eq!(parsed.to_string(), shown);
            let again = ServerUrl::parse(kind, shown).expect("what is shown");
            assert_eq!((again.user, again.database), (parsed.user, parsed.database));
            assert_eq!(again.socket, parsed.socket);
        }
    }

    #[test]
    fn connections_to_other_hosts_are_encrypted() {
        for (url, encrypted) in [
            ("mysql://me@localhost/queue", false),
            ("mysql://me@127.0.0.1/queue", false),
            ("mysql://me@db.example.net/queue", true),
            ("mysql://me@127.0.0.1,db.example.net/queue", true),
            ("mysql://me@db.example.net/queue?tls=off", false),
            ("mysql://me@localhost/queue?ssl-mode=REQUIRED", true),
            ("mysql://me@host/queue?socket=/run/mysqld/mysqld.sock", false),
        ] {
            assert_eq!(mysql(url).expect("a url").encrypted, encrypted, "{url}");
        }
    }

    #[test]
    fn url_errors_never_have_the_password() {
        for (url, said) in [
            ("mysql://me:secret@host", "has no database"),
            ("mysql://host/queue", "has no user"),
            ("mysql://me:secret@host:port/queue", "has an invalid port"),
            ("mysql://me:se/secret@host/queue", "write `/` as `%2F`"),
            ("mysql://me:se?secret@host/queue", "write `/` as `%2F`"),
            ("mysql://me:se@x/secret@host/queue", "write `/` as `%2F`"),
            ("mysql://me:se@x?secret@host/queue", "write `/` as `%2F`"),
            ("mysql://me@host:secret/queue", "has an invalid port"),
            ("mysql://me@[::1]3307/queue", "has an invalid port"),
            ("mysql://me@se cret/queue", "has an invalid host"),
            ("mysql://me@[secret/queue", "has an invalid host"),
            ("mysql://me@:3307/queue", "has an invalid host"),
            ("mysql://me:secret@host/queue?tsl=off", "has `tsl=off`; it may have `tls="),
            ("mysql://me@host/queue?password=secret", "has `password=…`"),
            ("mysql://me@host/queue?tsl=off?password=secret", "has `tsl=…`"),
        ] {
            let error = mysql(url).err().expect("an error");
            assert!(error.contains(said), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn password_is_added_to_url_without_one() {
        for (url, whole) in [
            ("mysql://me@host/queue", "mysql://me:p%40s@host/queue"),
            ("mysql://me:own@host/queue", "mysql://me:own@host/queue"),
            ("postgres://me@a,b:1/q?tls=off", "postgres://me:p%40s@a,b:1/q?tls=off"),
            ("sqlite://me@host", "sqlite://me@host"),
        ] {
            assert_eq!(with_password(url, "p@s"), whole);
        }
    }
}

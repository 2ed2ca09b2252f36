//! Keeps a server's password out of the list of processes: a url on the command line that has one is
//! taken off it, and the program begins anew with the password in its environment.

use std::ffi::OsString;
use std::io;

/// Where the passwords go: the environment's way to set `database.password` and `redis.password`.
const DATABASE: &str = "SMSQ__DATABASE__PASSWORD";
const REDIS: &str = "SMSQ__REDIS__PASSWORD";

/// Begins anew without the password, if there is one. Returns only where there is none, or with the reason why
/// it stays where everybody can read it.
#[cfg(unix)]
pub fn hide_password() -> Option<io::Error> {
    use std::os::unix::process::CommandExt;
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let (arguments, variable, password) = without_password(&arguments)?;
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return Some(error),
    };
    let mut anew = std::process::Command::new(program);
    if let Some((name, rest)) = arguments.split_first() {
        anew.arg0(name).args(rest);
    }
    Some(anew.env(variable, password).exec())
}

#[cfg(not(unix))]
pub fn hide_password() -> Option<io::Error> {
    None
}

/// The arguments without the first password in them, and where that goes in the clear.
fn without_password(arguments: &[OsString]) -> Option<(Vec<OsString>, &'static str, String)> {
    let mut arguments = arguments.to_vec();
    for index in 1..arguments.len() {
        // A url is text; a name of a file may be anything.
        let Some(text) = arguments[index].to_str() else {
            continue;
        };
        let before = arguments[index - 1].to_str();
        let (flag, url) = match text.split_once('=') {
            Some(("--database", url)) => ("--database=", url),
            Some(("--from", url)) => ("--from=", url),
            _ => ("", text),
        };
        let is_redis = url.starts_with("redis://") || url.starts_with("rediss://");
        let variable = match (flag, before) {
            ("--database=", _) | ("", Some("--database")) => DATABASE,
            // As what a text says it is the text.
            ("", Some("--text")) => continue,
            _ if is_redis => REDIS,
            _ => continue,
        };
        let Some((bare, password)) = taken_apart(url) else {
            continue;
        };
        arguments[index] = format!("{flag}{bare}").into();
        return Some((arguments, variable, password));
    }
    None
}

fn taken_apart(url: &str) -> Option<(String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    // A password may have a `/` or a `?` in it that should have been encoded: it ends at the last `@`.
    let (login, _) = rest.rsplit_once('@')?;
    let (user, password) = login.split_once(':')?;
    // The path of a file may have both characters in it.
    if scheme == "sqlite" || user.contains(['/', '?']) {
        return None;
    }
    let password = percent_encoding::percent_decode_str(password).decode_utf8();
    let password = password.ok().filter(|password| !password.is_empty())?;
    let host = &rest[login.len()..];
    let bare = match user {
        "" => format!("{scheme}://{}", &host[1..]),
        user => format!("{scheme}://{user}{host}"),
    };
    Some((bare, password.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_password_is_taken_off_the_command_line() {
        for (given, left) in [
            (
                "smsq --database mysql://me:p%40ss@host/queue send",
                "smsq --database mysql://me@host/queue send",
            ),
            (
                "smsq send --database=postgres://me:p%40ss@a,b:1/queue?tls=off",
                "smsq send --database=postgres://me@a,b:1/queue?tls=off",
            ),
            (
                "smsq import redis://:p%40ss@host:6379/0 --list tasks",
                "smsq import redis://host:6379/0 --list tasks",
            ),
            (
                "smsq import --from=rediss://me:p%40ss@host --list tasks",
                "smsq import --from=rediss://me@host --list tasks",
            ),
            (
                "smsq --database mysql://me:p@ss@host/queue send",
                "smsq --database mysql://me@host/queue send",
            ),
        ] {
            let (bare, variable, password) =
                without_password(&arguments(given)).expect("a password");
            assert_eq!(variable == REDIS, given.contains("import"));
            assert_eq!(bare, arguments(left));
            assert_eq!(password, "p@ss");
            assert_eq!(without_password(&bare), None, "once is enough");
        }
    }

    #[test]
    fn password_with_unencoded_characters_is_hidden_whole() {
        for (given, hidden) in [
            ("smsq --database mysql://me:hun/ter2@host/db", "hun/ter2"),
            ("smsq --database mysql://me:hun?ter2@host/db", "hun?ter2"),
            (
                "smsq --database mysql://me:hun@x/ter2@host/db",
                "hun@x/ter2",
            ),
        ] {
            let (bare, _, password) = without_password(&arguments(given)).expect("a password");
            assert_eq!(bare, arguments("smsq --database mysql://me@host/db"));
            assert_eq!(password, hidden);
        }
    }

    #[test]
    fn password_is_hidden_behind_argument_that_is_not_unicode() {
        use std::os::unix::ffi::OsStringExt;
        let mut line = arguments("smsq import");
        line.push(OsString::from_vec(vec![b'l', 0xff]));
        line.extend(arguments("--database mysql://me:secret@host/db"));
        let (bare, _, password) = without_password(&line).expect("a password");
        assert_eq!(bare[4], "mysql://me@host/db");
        assert_eq!(password, "secret");
    }

    #[test]
    fn a_command_line_without_a_password_stays() {
        for given in [
            "smsq send",
            "smsq --database mysql://me@host/queue send",
            "smsq --database sqlite://a:b.db send",
            "smsq import --text mysql://me:secret@host/queue",
            "smsq import --text redis://me:secret@host/queue",
            "smsq --database",
        ] {
            assert_eq!(without_password(&arguments(given)), None, "{given}");
        }
    }
}

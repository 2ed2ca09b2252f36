//! Keeps a database's password out of the list of processes: a url on the command line that has one is
//! taken off it, and the program begins anew with the password in its environment.

use std::ffi::OsString;

/// Where the password goes: the environment's way to set `database.password`.
const VARIABLE: &str = "SMSQ__DATABASE__PASSWORD";

/// Begins anew without the password, if there is one; where that cannot be done, everything goes on.
#[cfg(unix)]
pub fn hide_password() {
    use std::os::unix::process::CommandExt;
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let Some((arguments, password)) = without_password(&arguments) else {
        return;
    };
    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let mut anew = std::process::Command::new(program);
    if let Some((name, rest)) = arguments.split_first() {
        anew.arg0(name).args(rest);
    }
    // It returns only where it has failed.
    let error = anew.env(VARIABLE, password).exec();
    tracing::debug!(%error, "the password stays on the command line");
}

#[cfg(not(unix))]
pub fn hide_password() {}

/// The arguments without the password of `--database`, and that password in the clear.
fn without_password(arguments: &[OsString]) -> Option<(Vec<OsString>, String)> {
    let mut arguments = arguments.to_vec();
    for index in 1..arguments.len() {
        let text = arguments[index].to_str()?;
        let (flag, url) = match text.strip_prefix("--database=") {
            Some(url) => ("--database=", url),
            None if arguments[index - 1] == "--database" => ("", text),
            None => continue,
        };
        let (bare, password) = taken_apart(url)?;
        arguments[index] = format!("{flag}{bare}").into();
        return Some((arguments, password));
    }
    None
}

fn taken_apart(url: &str) -> Option<(String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let (login, _) = authority.rsplit_once('@')?;
    let (user, password) = login.split_once(':')?;
    let password = percent_encoding::percent_decode_str(password).decode_utf8();
    let password = password.ok().filter(|password| !password.is_empty())?;
    let bare = format!("{scheme}://{user}{}", &rest[login.len()..]);
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
        ] {
            let (bare, password) = without_password(&arguments(given)).expect("a password");
            assert_eq!(bare, arguments(left));
            assert_eq!(password, "p@ss");
            assert_eq!(without_password(&bare), None, "once is enough");
        }
    }

    #[test]
    fn a_command_line_without_a_password_stays() {
        for given in [
            "smsq send",
            "smsq --database mysql://me@host/queue send",
            "smsq --database sqlite://a:b.db send",
            "smsq import --text mysql://me:secret@host/queue",
            "smsq --database",
        ] {
            assert_eq!(without_password(&arguments(given)), None, "{given}");
        }
    }
}

//! Refuses servers that smsq does not support, by their version.

use super::{ConnectError, Connection};
use crate::error::StoreErrorKind;

/// Servers with the protocol of a supported database that lock, commit or create tables in another way: a part of
/// their version, and their name.
const UNSUPPORTED: [(&str, &str); 3] =
    [("CockroachDB", "CockroachDB"), ("-TiDB-", "TiDB"), ("-YB-", "YugabyteDB")];

/// Returns an error if the server at the other end of a new connection is not supported.
pub(super) async fn refuse_unsupported(connection: &mut Connection) -> Result<(), ConnectError> {
    let version = connection.text("version()").await?;
    unsupported(&version).map_or(Ok(()), |server| {
        let reason = format!("is {server}, which smsq does not support");
        Err(ConnectError::new(StoreErrorKind::Unsupported, reason))
    })
}

/// What the server with this version is, if it is not supported.
fn unsupported(version: &str) -> Option<String> {
    if let Some((_, name)) = UNSUPPORTED.iter().find(|(part, _)| version.contains(part)) {
        return Some((*name).to_owned());
    }
    // PostgreSQL's begins with its name.
    let mut numbers = version.split(|sign: char| !sign.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let found = (number()?, number()?);
    // Earlier ones do not know `SKIP LOCKED`.
    let (name, first) =
        if version.contains("MariaDB") { ("MariaDB", (10, 6)) } else { ("MySQL", (8, 0)) };
    (found < first).then(|| format!("{name} before {}.{}", first.0, first.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_a_borrowed_protocol_are_known_by_version() {
        let refused = [
            (
                "CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15 21:28:29, go1.22.2)",
                "CockroachDB",
            ),
            ("8.0.11-TiDB-v8.5.0", "TiDB"),
            ("5.7.25-TiDB-v6.1.0", "TiDB"),
            ("5.7.44-log", "MySQL before 8.0"),
            ("10.5.23-MariaDB-1:10.5.23+maria~ubu2004", "MariaDB before 10.6"),
            (
                "PostgreSQL 11.2-YB-2.18.0.1-b0 on x86_64-pc-linux-gnu, compiled by clang",
                "YugabyteDB",
            ),
        ];
        for (version, name) in refused {
            assert_eq!(unsupported(version).as_deref(), Some(name), "{version}");
        }
        for version in [
            "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc",
            "PostgreSQL 16.4 on aarch64-unknown-linux-gnu, compiled by Aurora",
            "10.11.19-MariaDB-0+deb12u1",
            "10.6.18-MariaDB",
            "8.0.39",
            "8.4.3-aurora",
        ] {
            assert_eq!(unsupported(version), None, "{version}");
        }
    }
}

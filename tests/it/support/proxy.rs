//! The proxy of `smsq prove` in front of a test's database.

use smsq_prove::proxy::Proxy;
use url::Url;

use super::databases::Database;

/// Starts a proxy to the server of this database.
pub(crate) fn proxy_to(db: &Database) -> Proxy {
    let url = Url::parse(&db.url).expect("a URL");
    let host = url.host_str().expect("a host");
    let port = url.port().expect("a port");
    Proxy::start(&format!("{host}:{port}")).expect("a proxy")
}

/// The URL of the database through the proxy.
pub(crate) fn url_through(proxy: &Proxy, db: &Database) -> String {
    let mut url = Url::parse(&db.url).expect("a URL");
    url.set_port(Some(proxy.address().port())).expect("a port");
    url.into()
}

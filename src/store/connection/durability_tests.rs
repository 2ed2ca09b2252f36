//! Whether commits wait for the disk.

use super::pool::Purpose;
use super::{TextValue, transaction, with_conn};
use crate::store::testing::server_databases;
use crate::store::{Access, Store};

/// A pooler may run each transaction in another session of the server.
#[tokio::test]
async fn transaction_waits_for_the_disk_whatever_its_session_does() {
    for url in server_databases().await {
        if !url.starts_with("postgres") {
            continue;
        }
        let store = Store::open(&url, Access::Create).await.expect("a store");
        for session in ["off", "on", "local"] {
            let mut pooled = store.pool.take(Purpose::Write).await.expect("a connection");
            let set = format!("SET synchronous_commit = {session}");
            pooled.connection().run(&set).await.expect("a setting");
            pooled.give_back();
            let read = "SELECT current_setting('synchronous_commit') AS value";
            let read: TextValue = transaction!(store, |connection| async {
                with_conn!(connection, |conn| diesel::sql_query(read).get_result(conn))
            })
            .expect("a setting");
            assert_eq!(read.value, "on", "{session}");
        }
    }
}

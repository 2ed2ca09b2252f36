//! Whether commits wait for the disk.

use super::pool::Purpose;
use super::transaction;
use crate::testing::server_databases;
use crate::{Access, Store};

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
            let setting = "current_setting('synchronous_commit')";
            let setting = transaction!(store, |connection| connection.text(setting));
            assert_eq!(setting.expect("a setting"), "on", "{session}");
        }
    }
}

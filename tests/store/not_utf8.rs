//! Bytes of other programs that are not UTF-8: servers reject or change them in text columns, and elsewhere they do
//! not prevent messages from being sent.

use smsq_lifecycle::Settled;
use smsq_store::CampaignStatus;

use super::server::on_every_server;
use super::test_queue::{NOW, TestQueue, again, failed, on_every_engine, sent};
use crate::support::databases::Kind;

/// `hi` and a byte that is never valid in UTF-8.
fn bytes(kind: Kind) -> &'static str {
    match kind {
        Kind::Mysql => "X'6869FF'",
        Kind::Sqlite | Kind::Postgres => r"E'hi\xff'",
    }
}

fn insert(column: &str, value: &str) -> String {
    match column {
        "phone" => format!("INSERT INTO sms (phone, content, due_at) VALUES ({value}, 'hello', 0)"),
        "content" => {
            format!(
                "INSERT INTO sms (phone, content, due_at) VALUES ('+8613800138000', {value}, 0)"
            )
        }
        _ => format!(
            "INSERT INTO sms (phone, content, {column}, due_at)
             VALUES ('+8613800138000', 'hello', {value}, 0)"
        ),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn server_rejects_text_that_is_not_utf8() {
    on_every_server(async |queue| {
        for column in ["phone", "content", "params", "reference", "last_class"] {
            let insert = insert(column, bytes(queue.db.kind));
            let refused = queue.db.client().try_run(&insert);
            refused.expect_err(column);
        }
        assert_eq!(queue.count("ready"), 0);
    })
    .await;
}

/// Claims all messages and settles them as sent or failed.
async fn send_all(queue: &TestQueue, rows: usize) {
    let worker = queue.worker().await;
    let claimed = queue.claim(worker.id, 1, 100).await;
    assert_eq!(claimed.len(), rows);
    for (place, sms) in claimed.iter().enumerate() {
        let transition = if place % 2 == 0 { sent() } else { failed() };
        assert_eq!(queue.settle(sms, transition).await, Settled::Done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn mysql_session_without_strict_mode_changes_text() {
    on_every_server(async |queue| {
        if queue.db.kind != Kind::Mysql {
            return;
        }
        let mut client = queue.db.client();
        client.run("SET SESSION sql_mode = ''");
        for column in ["content", "params", "reference"] {
            client.run(&insert(column, bytes(Kind::Mysql)));
        }
        client.run(&insert("phone", "'+8613800138001'"));
        let stored =
            client.run("SELECT DISTINCT hex(reference) FROM sms WHERE reference IS NOT NULL");
        // MariaDB replaces the byte with a question mark, and MySQL cuts the text.
        assert!(stored == ["68693F"] || stored == ["6869"], "{stored:?}");
        send_all(queue, 4).await;
        assert_eq!((queue.count("sent"), queue.count("recipient")), (2, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn message_with_binary_key_is_sent() {
    on_every_server(async |queue| {
        // The key is binary only there.
        if queue.db.kind != Kind::Mysql {
            return;
        }
        let mut client = queue.db.client();
        for byte in ["FE", "FF", "FFFE"] {
            client.run(&insert("dedupe_key", &format!("X'{byte}'")));
            client.run(&format!(
                "INSERT INTO sms_key (campaign_id, dedupe_key) VALUES (1, X'{byte}')"
            ));
        }
        client.run(&insert("phone", "'+8613800138001'"));
        send_all(queue, 4).await;
        assert_eq!((queue.count("sent"), queue.count("recipient")), (2, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn campaign_with_binary_key_is_cancelled() {
    on_every_engine(async |queue| {
        // The key is text there.
        if queue.db.kind == Kind::Postgres {
            return;
        }
        let spring = queue.queued(3).await;
        let mut client = queue.db.client();
        for byte in ["FE", "FF"] {
            client.run(&insert("dedupe_key", &format!("X'{byte}'")));
        }
        client.run(&format!("UPDATE sms SET campaign_id = {spring}"));
        let worker = queue.worker().await;
        // The messages of other programs are due first.
        let claimed = queue.claim(worker.id, spring, 4).await;
        let garbled = claimed.first().expect("it is claimed");
        queue.set_state(spring, CampaignStatus::Cancelled).await;
        for sms in &claimed {
            assert_eq!(queue.settle(sms, again()).await, Settled::Done);
        }
        let waiting = queue.store.cancel_rows(spring, NOW).await;
        assert_eq!(waiting.expect("cancelled"), 1);
        assert_eq!(queue.count("cancelled"), 5);
        let ids: Vec<i64> = claimed.iter().map(|sms| sms.id).collect();
        let origins = queue.store.imports().origins(&ids).await.expect("they are read");
        assert_eq!(origins.len(), 4);
        assert_eq!(queue.settle(garbled, sent()).await, Settled::Late);
        assert_eq!((queue.count("cancelled"), queue.count("sent")), (4, 1));
    })
    .await;
}

//! Bytes that are no UTF-8, from other programs: where they are text they are not let in, or
//! only as another text, and where they are not they keep nobody from being sent.

use smsq::queue::Settled;
use smsq::store::CampaignStatus;

use super::desk::{Desk, NOW, again, at_every_desk, failed, sent};
use super::server::at_every_server;
use crate::support::databases::Kind;

/// "hi", and a byte that no UTF-8 has.
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
async fn a_text_that_is_no_utf8_is_not_let_in() {
    at_every_server(async |desk| {
        for column in ["phone", "content", "params", "reference", "last_class"] {
            let insert = insert(column, bytes(desk.db.kind));
            let refused = desk.db.client().try_run(&insert);
            refused.expect_err(column);
        }
        assert_eq!(desk.count("ready"), 0);
    })
    .await;
}

/// Claims all, and settles them so that every kind of move is made.
async fn send_all(desk: &Desk, rows: usize) {
    let worker = desk.worker().await;
    let claimed = desk.claim(worker.id, 1, 100).await;
    assert_eq!(claimed.len(), rows);
    for (place, sms) in claimed.iter().enumerate() {
        let transition = if place % 2 == 0 { sent() } else { failed() };
        assert_eq!(desk.settle(sms, transition).await, Settled::Done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lenient_session_lets_it_in_as_text() {
    at_every_server(async |desk| {
        if desk.db.kind != Kind::Mysql {
            return;
        }
        let mut client = desk.db.client();
        client.run("SET SESSION sql_mode = ''");
        for column in ["content", "params", "reference"] {
            client.run(&insert(column, bytes(Kind::Mysql)));
        }
        client.run(&insert("phone", "'+8613800138001'"));
        assert_eq!(
            client.run("SELECT DISTINCT hex(reference) FROM sms WHERE reference IS NOT NULL"),
            ["68693F"]
        );
        send_all(desk, 4).await;
        assert_eq!((desk.count("sent"), desk.count("recipient")), (2, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_key_of_any_bytes_keeps_nobody_from_being_sent() {
    at_every_server(async |desk| {
        // Elsewhere it is text.
        if desk.db.kind != Kind::Mysql {
            return;
        }
        let mut client = desk.db.client();
        for byte in ["FE", "FF", "FFFE"] {
            client.run(&insert("dedupe_key", &format!("X'{byte}'")));
            client.run(&format!("INSERT INTO sms_key VALUES (1, X'{byte}')"));
        }
        client.run(&insert("phone", "'+8613800138001'"));
        send_all(desk, 4).await;
        assert_eq!((desk.count("sent"), desk.count("recipient")), (2, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_key_of_any_bytes_keeps_no_campaign_from_being_cancelled() {
    at_every_desk(async |desk| {
        // There it is text.
        if desk.db.kind == Kind::Postgres {
            return;
        }
        let spring = desk.queued(3).await;
        let mut client = desk.db.client();
        for byte in ["FE", "FF"] {
            client.run(&insert("dedupe_key", &format!("X'{byte}'")));
        }
        client.run(&format!("UPDATE sms SET campaign_id = {spring}"));
        let worker = desk.worker().await;
        // Those of other programs are the first that are due.
        let claimed = desk.claim(worker.id, spring, 4).await;
        let garbled = claimed.first().expect("it is claimed");
        let cancelled = CampaignStatus::Cancelled;
        let set = desk.store.set_campaign_state(spring, cancelled, None);
        set.await.expect("a state");
        for sms in &claimed {
            assert_eq!(desk.settle(sms, again()).await, Settled::Done);
        }
        let waiting = desk.store.cancel_rows(spring, NOW).await;
        assert_eq!(waiting.expect("cancelled"), 1);
        assert_eq!(desk.count("cancelled"), 5);
        let ids: Vec<i64> = claimed.iter().map(|sms| sms.id).collect();
        let origins = desk.store.origins(&ids).await.expect("they are read");
        assert_eq!(origins.len(), 4);
        assert_eq!(desk.settle(garbled, sent()).await, Settled::Late);
        assert_eq!((desk.count("cancelled"), desk.count("sent")), (4, 1));
    })
    .await;
}

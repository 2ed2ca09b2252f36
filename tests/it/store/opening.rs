//! Opening: new databases, known ones, newer ones, and what is none.

use smsq::store::{Access, Fault, NewCampaign, Store};

use super::desk::{Desk, NOW, at_every_desk, sent};
use crate::support::databases::{Kind, on_every_database};

const APPLIED: &str = "SELECT count(*) AS value FROM __diesel_schema_migrations";

#[tokio::test]
async fn the_tables_are_made_once() {
    at_every_desk(async |desk| {
        let applied = desk.db.number(APPLIED);
        desk.queued(3).await;
        let again = desk.db.open().await.expect("a database");
        assert_eq!(desk.db.number(APPLIED), applied);
        assert_eq!(again.totals(None).await.expect("totals").queued, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_workers_may_make_the_tables_at_once() {
    on_every_database(async |db| {
        let url = db.url.clone();
        let opening: Vec<_> = (0..8)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { Store::open(&url, Access::Create).await.map(drop) })
            })
            .collect();
        for opened in opening {
            opened.await.expect("no panic").expect("a database");
        }
        assert_eq!(db.number("SELECT count(*) AS value FROM campaign"), 1);
    })
    .await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_stays_as_it_is() {
    at_every_desk(async |desk| {
        desk.db
            .run("INSERT INTO __diesel_schema_migrations (version) VALUES ('9999')");
        let before = desk.db.number(APPLIED);
        for access in [Access::Create, Access::Existing] {
            let opened = Store::open(&desk.db.url, access).await;
            let error = opened.err().expect("it is newer");
            assert_eq!(error.fault(), Fault::Newer);
            assert!(error.to_string().contains("9999"), "{error}");
        }
        assert_eq!(desk.db.number(APPLIED), before);
    })
    .await;
}

#[tokio::test]
async fn a_url_that_names_no_database_is_refused() {
    for url in ["", "smsq.db", "sqlite://", "ftp://host/queue", "oracle:x"] {
        let error = Store::open(url, Access::Create).await.err();
        assert_eq!(error.expect(url).fault(), Fault::Url, "{url}");
    }
    let secret = Store::open("ftp://me:hunter2@host/queue", Access::Create).await;
    let sentence = secret.err().expect("unknown").to_string();
    assert!(!sentence.contains("hunter2"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_that_two_open_at_once_is_one() {
    at_every_desk(async |desk| {
        let opening: Vec<_> = (0..6)
            .map(|_| {
                let url = desk.db.url.clone();
                tokio::spawn(async move {
                    let store = Store::open(&url, Access::Existing).await.expect("a store");
                    let new = NewCampaign {
                        name: "spring".to_owned(),
                        ..NewCampaign::default()
                    };
                    store.open_campaign(&new, NOW).await.expect("a campaign").id
                })
            })
            .collect();
        let mut ids = Vec::new();
        for opened in opening {
            ids.push(opened.await.expect("no panic"));
        }
        ids.dedup();
        assert_eq!(ids.len(), 1);
    })
    .await;
}

/// `PgBouncer` in transaction mode: without prepared statements it is refused, with them everything works.
#[tokio::test(flavor = "multi_thread")]
async fn transaction_pooler_works_or_is_refused_at_once() {
    let Ok(pooler) = std::env::var("SMSQ_TEST_PGBOUNCER") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "`tests/run` starts a PgBouncer"
        );
        return;
    };
    on_every_database(async |db| {
        if db.kind != Kind::Postgres {
            return;
        }
        let name = db.url.rsplit_once('/').expect("a path").1;
        let opened = Store::open(&format!("{pooler}/{name}"), Access::Create).await;
        let store = match opened {
            Ok(store) => store,
            Err(error) => {
                assert_eq!(error.fault(), Fault::Pooler, "{error}");
                let hint = error.hint().unwrap_or_default();
                assert!(hint.contains("pool_mode = session"), "{hint}");
                // The pooler still has the first one's statements.
                let url = format!("{pooler}/{name}");
                let again = Store::open(&url, Access::Create).await;
                let error = again.err().expect("it is the same pooler");
                assert_eq!(error.fault(), Fault::Pooler, "{error}");
                return;
            }
        };
        let desk = Desk { db, store };
        let spring = desk.queued(20).await;
        let worker = desk.worker().await;
        for sms in desk.claim(worker.id, spring, 20).await {
            desk.settle(&sms, sent()).await;
        }
        desk.assert_nothing_is_lost().await;
    })
    .await;
}

//! The queries of reports on every database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rlibphonenumber::{PHONE_NUMBER_UTIL, PhoneNumberFormat, PhoneNumberType};
use smsq_lifecycle::Transition;
use smsq_message::phone::{self, Phone};
use smsq_message::sms::{Class, Failure};
use smsq_store::report::Outcomes;
use smsq_store::{CampaignFilter, ImportTexts, ObservedStatement};

use super::test_queue::{NOW, after, on_every_engine, sent, unknown};

/// All messages belong to campaign `spring`, which is the second one.
fn sent_row(id: i64, phone: &str, provider: &str, segments: i64, accepted: i64, at: i64) -> String {
    format!(
        "INSERT INTO sms_sent (id, campaign_id, phone, provider, message_id, segments, attempts, accepted, \
         claim, created_at, sent_at) VALUES ({id}, 2, '{phone}', '{provider}', 'SM{id}', {segments}, 1, \
         {accepted}, 1, {at}, {at});"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn campaign_that_is_added_meanwhile_is_not_missing() {
    on_every_engine(async |queue| {
        let client = Arc::new(Mutex::new(Some(queue.db.client())));
        // After the campaigns are read, and before their messages.
        let add = move |statement: ObservedStatement| {
            if statement.sql.contains("min(")
                && let Some(mut client) = client.lock().expect("one thread").take()
            {
                client.run("INSERT INTO campaign (id, name) VALUES (77, 'added')");
                client.run(
                    "INSERT INTO sms (campaign_id, phone, content, due_at, created_at) \
                     VALUES (77, '+447400123456', 'hello', 1, 1), (78, '+447400123456', 'hello', 1, 1)",
                );
            }
        };
        queue.store.observe(move || Arc::new(add.clone()));
        let missing = queue.store.report().without_campaign().await.expect("read");
        assert_eq!(missing, [(78, 1)]);
        queue.db.client().run("DELETE FROM sms WHERE campaign_id = 78");
    })
    .await;
}

#[tokio::test]
async fn sent_is_counted_by_provider_and_prefix() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let at = NOW.as_millis();
        queue.db.run(&sent_row(101, "+447400301000", "cellar", 2, 1, at));
        queue.db.run(&sent_row(102, "+447400301001", "cellar", 3, 2, at + 5_000));
        queue.db.run(&sent_row(103, "+442079460018", "cellar", 1, 1, at));
        queue.db.run(&sent_row(104, "+447400301000", "attic", 1, 1, at));
        let all = queue.store.report().sent(CampaignFilter::One(spring), 4).await.expect("counts");
        let mut counts: Vec<_> = all
            .counts
            .iter()
            .map(|one| {
                let key = (one.provider.as_str(), one.phone.as_str());
                (key, one.messages, one.segments, one.billed)
            })
            .collect();
        counts.sort_unstable();
        assert_eq!(
            counts,
            [
                (("attic", "+447400301000"), 1, 1, 1),
                (("cellar", "+442079460018"), 1, 1, 1),
                // A message that was accepted twice is billed twice.
                (("cellar", "+447400301000"), 2, 5, 8),
            ]
        );
        assert_eq!(all.facts.first_at, Some(NOW));
        assert_eq!(all.facts.last_at, Some(after(5)));
        assert_eq!((all.facts.segments, all.facts.attempts, all.facts.repeated), (7, 4, 1));
    })
    .await;
}

#[tokio::test]
async fn sent_is_counted_by_the_country_of_every_number() {
    let kinds = [PhoneNumberType::Mobile, PhoneNumberType::FixedLine];
    let mut phones = BTreeSet::new();
    for region in PHONE_NUMBER_UTIL.get_supported_regions() {
        for kind in kinds {
            let example = PHONE_NUMBER_UTIL.get_example_number_for_type_and_region(region, kind);
            let Ok(example) = example else { continue };
            let example = example.format_as(PhoneNumberFormat::E164).into_owned();
            // Neighbours of the example, some of which are of another country with the same calling code.
            let start = &example[..example.len() - 4];
            phones.extend((0..10_000).step_by(1_111).filter_map(|end| {
                let phone = Phone::parse(&format!("{start}{end:04}"), None).ok()?;
                Some(phone.into_string())
            }));
        }
    }
    let mut expected: BTreeMap<Option<String>, u64> = BTreeMap::new();
    for phone in &phones {
        *expected.entry(phone::country(phone)).or_default() += 1;
    }
    assert!(expected.len() > 230, "{}", expected.len());
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let rows = phones.iter().enumerate().map(|(at, phone)| {
            let id = 100 + i64::try_from(at).expect("few phones");
            sent_row(id, phone, "cellar", 1, 1, NOW.as_millis())
        });
        queue.db.run(&rows.collect::<String>());
        let all = queue.store.report().sent(CampaignFilter::One(spring), 4).await.expect("counts");
        let mut counted: BTreeMap<Option<String>, u64> = BTreeMap::new();
        for count in &all.counts {
            *counted.entry(phone::country(&count.phone)).or_default() += count.messages;
        }
        assert_eq!(counted, expected);
    })
    .await;
}

#[tokio::test]
async fn reasons_leave_out_messages_that_an_import_has_fixed() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let at = NOW.as_millis();
        for id in 101..=103 {
            let phone = format!("+447400301{id}");
            queue.db.run(&sent_row(id, &phone, "cellar", 1, 1, at));
        }
        queue.db.run("UPDATE sms_sent SET delivery_state = 'undelivered', delivery_reason = 'off'");
        queue.db.run(&format!("UPDATE sms_sent SET resent_at = {at} WHERE id = 102"));
        let reasons = queue.store.report().undelivered_by_reason(CampaignFilter::One(spring)).await;
        let counted: u64 = reasons.expect("reasons").iter().map(|one| one.count).sum();
        let mut walk =
            queue.store.report().undelivered(CampaignFilter::One(spring)).await.expect("a walk");
        let listed = queue.store.report().next_undelivered(&mut walk, 10).await;
        assert_eq!((counted, listed.expect("a page").len()), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn last_failure_is_of_an_attempt() {
    on_every_engine(async |queue| {
        queue.queued(2).await;
        let last = async || queue.store.report().last_failure("spring").await.expect("a read");
        let set = |id: &str, class: &str, reason: &str| {
            queue.db.run(&format!(
                "UPDATE sms SET last_class = '{class}', last_reason = '{reason}' WHERE id = ({id})"
            ));
        };
        let ids = queue.db.words("SELECT CAST(id AS CHAR(20)) AS value FROM sms ORDER BY id");
        let ids: Vec<String> = ids.into_iter().flatten().collect();
        set(&ids[1], "cancelled", "its campaign was cancelled");
        assert_eq!(last().await, None);
        set(&ids[0], "unavailable", "503");
        assert_eq!(last().await.as_deref(), Some("503"));
    })
    .await;
}

#[tokio::test]
async fn pages_of_sent_messages_list_each_once() {
    on_every_engine(async |queue| {
        queue.campaign("spring").await;
        // Pages end within an instant, at its end, and between two instants.
        for id in 1..=25_i64 {
            let at = NOW.as_millis() + id / 10;
            let phone = format!("+4474003010{id:02}");
            queue.db.run(&sent_row(100 - id, &phone, "cellar", 1, 1, at));
        }
        let mut walk =
            queue.store.report().sent_messages(CampaignFilter::All).await.expect("a walk");
        let mut phones = Vec::new();
        loop {
            let page = queue.store.report().next_sent(&mut walk, 4).await.expect("a page");
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= 4);
            assert!(page.is_sorted_by_key(|one| one.sent_at));
            phones.extend(page.into_iter().map(|one| one.phone));
        }
        assert_eq!(phones.len(), 25);
        phones.sort_unstable();
        phones.dedup();
        assert_eq!(phones.len(), 25);
    })
    .await;
}

#[tokio::test]
async fn outcomes_are_counted_over_time() {
    on_every_engine(async |queue| {
        let (spring, _, rows) = queue.claimed(4).await;
        let opted_out = Transition::Failed(Failure::new(Class::OptedOut, "stop"));
        for (sms, transition) in rows.iter().zip([sent(), sent(), opted_out, unknown()]) {
            queue.settle(sms, transition).await;
        }
        let first = rows[0].id;
        queue.db.run(&format!("UPDATE sms_sent SET sent_at = sent_at + 2500 WHERE id = {first};"));
        let spans = queue
            .store
            .report()
            .outcomes_over_time(CampaignFilter::One(spring), NOW, Duration::from_secs(1), 3)
            .await
            .expect("counts");
        let (one, two) = (spans[0], spans[2]);
        assert_eq!((one.sent, one.failed, one.unknown), (1, 1, 1));
        assert_eq!(spans[1], Outcomes::default());
        assert_eq!((two.sent, two.failed, two.unknown), (1, 0, 0));
        let classes = queue
            .store
            .report()
            .failed_by_class(CampaignFilter::One(spring))
            .await
            .expect("counts");
        assert_eq!(classes.len(), 1);
        assert_eq!((classes[0].class.as_str(), classes[0].messages), ("opted_out", 1));
        assert_eq!((classes[0].first_at, classes[0].last_at), (NOW, NOW));
    })
    .await;
}

#[tokio::test]
async fn import_keeps_its_text_and_alphabets() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let import = queue.begin(spring).await;
        let note = |template, sample, ucs2| ImportTexts { template, sample, gsm7: 2, ucs2 };
        for one in [note(None, Some("Hi Ann"), 1), note(None, None, 0)] {
            queue.store.imports().add_texts(import, one).await.expect("noted");
        }
        let lists = queue.store.report().lists(CampaignFilter::One(spring)).await.expect("lists");
        assert_eq!((lists[0].gsm7, lists[0].ucs2), (4, 1));
        assert_eq!(lists[0].text.as_deref(), Some("Hi Ann"));
        let template = note(Some("Hi {{ name }}"), None, 0);
        queue.store.imports().add_texts(import, template).await.expect("noted");
        let lists = queue.store.report().lists(CampaignFilter::One(spring)).await.expect("lists");
        assert_eq!(lists[0].text.as_deref(), Some("Hi {{ name }}"));
    })
    .await;
}

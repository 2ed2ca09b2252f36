//! Reports from a real database.

use std::collections::HashSet;

use smsq_message::sms::NewSms;
use smsq_store::{Access, CampaignStatus, ImportApproval, ImportBatch, NewCampaign};

use super::*;

/// A campaign with `count` cancelled messages.
async fn cancelled(folder: &tempfile::TempDir, count: u64) -> (Store, Campaign) {
    let url = format!("sqlite://{}", folder.path().join("smsq.db").display());
    let store = Store::open(&url, Access::Create).await.expect("a database");
    let now = store.now().await.expect("the clock");
    let new = NewCampaign { name: "spring".to_owned(), ..NewCampaign::default() };
    let campaign = store.open_campaign(&new, now).await.expect("a campaign");
    let import_id =
        store.imports().begin(campaign.id, "list.csv", "hash", None, now).await.expect("begun");
    let rows = (0..count)
        .map(|line| NewSms {
            line: line + 2,
            phone: format!("+1500{line:07}"),
            content: "hello".to_owned(),
            params: format!(r#"{{"name":"Ann","odd{}":"x"}}"#, line % 2),
            segments: 1,
            dedupe_key: line.to_string(),
            replaces: None,
        })
        .collect();
    let batch = ImportBatch {
        import_id,
        campaign_id: campaign.id,
        now,
        due_at: now,
        expires_at: None,
        window: None,
        division: None,
        approval: ImportApproval::OneByOne(String::new()),
        rows,
        row_count: count,
        rejected: 0,
        last_line: count + 1,
    };
    store.imports().enqueue(&batch).await.expect("queued");
    store
        .change_campaign_state(
            campaign.id,
            &CampaignStatus::ALL,
            CampaignStatus::Cancelled,
            None,
            None,
        )
        .await
        .expect("set");
    store.cancel_rows(campaign.id, now).await.expect("moved");
    let campaign = store.campaign("spring").await.expect("read");
    (store, campaign.expect("it is there"))
}

async fn written(
    store: &Store,
    campaign: Option<&Campaign>,
    format: Format,
    listing: Listing,
) -> String {
    let report =
        Report::gather(store, campaign, &ReportOptions::default()).await.expect("a report");
    let mut bytes = Vec::new();
    report.write(store, format, listing, &mut bytes).await.expect("written");
    String::from_utf8(bytes).expect("all of it is text")
}

#[tokio::test]
async fn csv_has_every_failure_and_all_columns() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, campaign) = cancelled(&folder, 2_500).await;
    let text = written(&store, Some(&campaign), Format::Csv, Listing::Failed).await;
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some(
            "phone,content,name,odd0,odd1,smsq_id,smsq_state,smsq_class,smsq_code,smsq_reason,smsq_attempts"
        )
    );
    let phones: HashSet<&str> = lines.filter_map(|line| line.split(',').next()).collect();
    assert_eq!(phones.len(), 2_500);
}

#[tokio::test]
async fn json_is_complete_for_one_campaign_and_for_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, campaign) = cancelled(&folder, 1_001).await;
    for one in [Some(&campaign), None] {
        let text = written(&store, one, Format::Json, Listing::Figures).await;
        let value: serde_json::Value = serde_json::from_str(&text).expect("json");
        assert_eq!(value["imported"], 1_001);
        assert_eq!(value["cancelled"], 1_001);
        assert_eq!(value["by_reason"][0]["count"], 1_001);
        assert_eq!(value["failures"].as_array().map(Vec::len), Some(1_001));
        assert_eq!(value["failures"][0]["campaign"].is_string(), one.is_none());
        assert_eq!(value["campaigns"].is_array(), one.is_none());
    }
}

#[tokio::test]
async fn page_lists_the_first_failures_and_their_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, campaign) = cancelled(&folder, 2_500).await;
    let page = written(&store, Some(&campaign), Format::Html, Listing::Figures).await;
    assert!(page.contains("The first 2,000 of 2,500"));
    assert_eq!(page.matches(r#"<td class="phone">"#).count(), 2_000);
}

#[tokio::test]
async fn text_leaves_out_the_unused_default_campaign() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, _) = cancelled(&folder, 3).await;
    let text = written(&store, None, Format::Text, Listing::Figures).await;
    assert!(text.starts_with("spring: cancelled\n"), "{text}");
    let list = written(&store, None, Format::Text, Listing::Failed).await;
    assert_eq!(list.lines().count(), 3);
}

#[test]
fn delivery_time_is_a_percentile_of_all_messages() {
    assert_eq!(DeliveryTime::of(&[]), None);
    let times = [(100, 40), (200, 20), (5_000, 35), (90_000, 5)];
    let took = DeliveryTime::of(&times).expect("a time");
    assert_eq!((took.median.as_millis(), took.p95.as_millis()), (200, 5_000));
}

#[tokio::test]
async fn broken_pipe_ends_the_report() {
    struct Closed;
    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (store, campaign) = cancelled(&folder, 3).await;
    let report =
        Report::gather(&store, Some(&campaign), &ReportOptions::default()).await.expect("a report");
    for format in [Format::Text, Format::Csv, Format::Json, Format::Html] {
        let error = report
            .write(&store, format, Listing::Failed, &mut Closed)
            .await
            .expect_err("a broken pipe");
        let kind = match &error {
            ReportError::Write(error) => Some(error.kind()),
            _ => None,
        };
        assert_eq!(kind, Some(io::ErrorKind::BrokenPipe), "{error}");
    }
}
